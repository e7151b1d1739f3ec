"""What the suite's probes say about themselves, and that reading it costs nothing."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest

from smoke import probe

from .conftest import ROOT

PROBES = probe.discover()
ALL = PROBES | probe.discover(probe.OWN)


@pytest.mark.parametrize("file", ALL.values(), ids=ALL)
def test_probe_says_what_it_is_for(file: probe.ProbeFile) -> None:
    """What it asks, what it catches, upstream links, and for every bound where it comes from."""
    text = ast.get_docstring(ast.parse(file.path.read_text())) or ""
    assert file.asks.endswith("?")
    assert "Catches " in text
    assert len(file.probe.matters) > 15
    assert file.probe.links
    assert all(link.startswith("https://github.com/") for link in file.probe.links)
    for bound in file.probe.bounds:
        assert len(bound.why) > 15
        assert "TODO" not in bound.why
        # A number without a limit is only recorded, and says so.
        assert (bound.limit() is None) == bound.why.startswith("recorded:")


@pytest.mark.parametrize("file", ALL.values(), ids=ALL)
def test_probe_with_several_ranks_takes_as_many_gpus(file: probe.ProbeFile) -> None:
    """NCCL refuses two ranks on one GPU."""
    assert file.probe.ranks == 1 or file.probe.gpus >= file.probe.ranks


def test_list_shows_every_probe() -> None:
    """As JSON, with everything a table or a certificate wants to say."""
    listed = json.loads(run("-m", "smoke", "--list"))
    assert [entry["name"] for entry in listed] == list(PROBES)
    assert {tuple(entry) for entry in listed} == {
        (
            "name",
            "asks",
            "matters",
            "links",
            "needs",
            "skips",
            "ranks",
            "gpus",
            "fresh",
            "forks",
            "timeout_s",
            "memory_mib",
            "bounds",
        )
    }


def test_supervisor_imports_the_standard_library_only() -> None:
    """All of what it imports, with the descriptions of the probes."""
    code = "import sys, smoke.__main__ as m; m.probe.discover(); print(*{name.split('.')[0] for name in sys.modules})"
    known = {*sys.stdlib_module_names, "smoke", "__main__", "__mp_main__"}
    own = set(run("-I", "-S", "-c", f"import sys; sys.path.append({str(ROOT)!r}); {code}").split())
    assert {name for name in own - known if not name.startswith("smoke_probe_")} == set()


def test_suite_needs_nothing_of_the_builder() -> None:
    """It has to run where the builder is not."""
    for file in (ROOT / "smoke").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "builder" for name in names), file


def run(*arguments: str) -> str:
    """The output of a Python with these arguments."""
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
