"""An advisory of a tiny package, to write into a small project and to vary."""

from __future__ import annotations

from builder.intent import advisory
from builder.intent.advisory import Advisory
from tests.conftest import Small

ID = "VETTED-9001"
WHERE = f"advisories/{ID}.toml"
SUMMARY = 'summary = "Tiny 1.0 greets nobody"'
PACKAGES = 'packages = { tiny-lib = "<2", trl = ">=0.15" }'
CONTEXT = "zero_stage = [3]"
RECORD = f"""\
id = "{ID}"
{SUMMARY}
severity = "crash"
published = 2026-11-21
details = "It greets nobody."
symptoms = ['greets n\\w+']
probes = ["beta"]
controls = ["trl0.14-optimizer"]
references = [{{ type = "REPORT", url = "https://example.org/1" }}]

[[affected]]
{PACKAGES}

[affected.context]
{CONTEXT}
flags = {{ bf16 = true, num_generations = ">=2" }}

[[fix]]
packages = {{ tiny-lib = ">=2" }}

[evidence]
kind = "executed"
says = "it was run"
"""
CERTAIN = RECORD.replace("[affected.context]\n", "").replace(f"{CONTEXT}\n", "").replace("flags =", "# flags =")
VERSIONS = {"tiny-lib": "1.0", "trl": "0.15.2"}


def write(small: Small, text: str = RECORD, name: str = ID) -> None:
    small.project.advisories.mkdir(exist_ok=True)
    (small.project.advisories / f"{name}.toml").write_text(text, encoding="utf-8")


def read(small: Small, text: str = RECORD) -> Advisory:
    write(small, text)
    return advisory.load(small.project, ID)


def affecting(small: Small, packages: str) -> Advisory:
    """An advisory of these packages, in any context."""
    assert CERTAIN.count(PACKAGES) == 1
    return read(small, CERTAIN.replace(PACKAGES, f"packages = {packages}"))
