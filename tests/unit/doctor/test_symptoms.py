"""What is kept of a log or an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.read import symptoms
from doctor.read.files import UnreadableError


def test_a_log_is_cut_to_what_speaks(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    noise = "".join(f"{{'loss': 0.{number}}}\n" for number in range(5000))
    log.write_text(f"{noise}RuntimeError: operator torchvision::nms does not exist\n{noise}")
    lines = symptoms.read(str(log)).splitlines()
    assert "RuntimeError: operator torchvision::nms does not exist" in lines
    assert len(lines) < 200
    with pytest.raises(UnreadableError, match="No such file"):
        symptoms.read(str(tmp_path / "none"))


def test_a_word_longer_than_any_name_is_cut_so_that_no_pattern_runs_over_it() -> None:
    assert symptoms.plain("Ab" * 5000 + "Error: c") == "Ab" * 150 + ": c"
