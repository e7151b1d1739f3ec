"""The doctor on the locks of the controls: what the suite found there by running, it finds by reading."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.broken import CONTROLS
from builder.base import project
from builder.certify import control
from doctor import __main__ as program
from tests.conftest import ROOT


@pytest.mark.parametrize(("name", "config", "advisory"), [(name, *case) for name, case in CONTROLS.items()])
def test_the_first_finding_is_the_controls_and_its_twin_has_none(
    name: str, config: str, advisory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    locked = control.load(project.find(ROOT), name)
    settings = tmp_path / "config.yaml"
    settings.write_text(config)
    recorded = json.loads((ROOT / "docs" / "evidence" / "controls.json").read_text())["rows"]
    (row,) = [row for row in recorded if row["control"] == name]
    log = tmp_path / "run.log"
    log.write_text("\n".join(str(result["reason"]) for result in row["on_control"]))
    rules = []
    for lock, more in ((locked.bad, ["--log", str(log)]), (locked.twin, [])):
        freeze = tmp_path / f"{lock.name}.txt"
        freeze.write_text("".join(f"{package}=={version}\n" for package, version in lock.versions.items()))
        program.main(["--requirements", str(freeze), "--config", str(settings), *more, "--json"])
        findings = json.loads(capsys.readouterr().out)["findings"]
        rules.append([finding["rule"] for finding in findings if finding["confidence"] == "certain"])
    assert rules[0][0] == advisory
    assert advisory not in rules[1]
