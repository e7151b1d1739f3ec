"""What the tests of the doctor share: environments and reports, and the findings on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from doctor.answer import diagnose
from doctor.case import Case
from doctor.finding import Finding
from doctor.know import data
from doctor.read import environment, requirements

KNOWLEDGE = data.load()


SILENT = {"trl": "0.14.0", "transformers": "4.52.4"}


def install(
    folder: Path,
    name: str,
    version: str,
    requires: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
    python: str = "",
) -> Path:
    """A distribution as pip would leave it in a site-packages folder."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {python}"] if python else []
    lines += [f"Requires-Dist: {line}" for line in requires]
    (info / "METADATA").write_text("\n".join([*lines, "", "Requires-Dist: not-a-field; it is the description"]))
    for path, content in (files or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in files or {}))
    return info


def of(folder: Path, **more: Any) -> Case:
    return Case(environment.of_folders("a test", [folder], "3.11.2"), knowledge=KNOWLEDGE, **more)


def reported(packages: Mapping[str, str], error: str = "", **more: Any) -> Case:
    """What somebody reports: versions, and an error."""
    return Case(requirements.of_versions("a report", dict(packages)), error=error, knowledge=KNOWLEDGE, **more)


def rules(case: Case) -> list[str]:
    return [finding.rule for finding in diagnose.findings(case)]


def first(case: Case) -> Finding:
    return diagnose.findings(case)[0]


def only(case: Case, rule: str) -> Finding:
    (finding,) = [finding for finding in diagnose.findings(case) if finding.rule == rule]
    return finding
