"""The table of broken environments: only what failed and passes, for the reason that is known, counts as good."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import broken as recorder
from builder.base.project import Project
from builder.intent import stack
from builder.pages import broken, evidence
from tests.conftest import ROOT, Small

ROW = {
    "name": "trl0.14-optimizer", "rule": "VETTED-0009", "confidence": "certain", "expected": "VETTED-0009",
    "commands": ["uv pip install --python ENV/bin/python3 'trl>=0.15.0,<0.16'"], "before": "fails", "after": "passes",
    "output": "", "seconds": 61.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "mended"),
    [
        ({}, True),
        ({"after": "fails"}, False),
        ({"before": "passes"}, False),
        ({"rule": "VETTED-0010"}, False),  # good by luck
        ({"rule": "demanded", "expected": ""}, True),
    ],
)
def test_a_row_for_each_environment(small: Small, change: dict[str, Any], mended: bool) -> None:
    assert broken.results(small.project) == "Not measured yet.\n"
    evidence.record(small.project, "broken", "it", {"rows": [{**ROW, **change}]}, small.scratch())
    text = broken.results(small.project)
    assert text.startswith(f"**{int(mended)} of 1** are good afterwards. Measured on ")
    command = "<code>uv pip install 'trl&gt;=0.15.0,&lt;0.16'</code>"
    assert f"| {command} | {'yes' if mended else '**no**'} |" in text


def test_rows_that_were_not_made_again_stay(small: Small) -> None:
    """They take half an hour: a run that ends early, or makes one of them anew, loses nothing."""
    recorder._record(small.project, [ROW, {**ROW, "name": "peft0.17-transformers5", "expected": ""}])
    recorder._record(small.project, [{**ROW, "after": "fails"}])
    record = evidence.read(small.project, broken.Broken)
    assert record is not None
    assert [(row.name, row.after) for row in record.rows] == [
        ("trl0.14-optimizer", "fails"), ("peft0.17-transformers5", "passes"),
    ]  # fmt: skip


def test_the_last_words_of_an_output_are_kept() -> None:
    assert recorder.last_line("File \"/x/y.py\"\nKeyError: 'a'\n\n") == "KeyError: 'a'"
    assert recorder.last_line("") == ""


def test_there_are_sixteen_and_each_has_a_question() -> None:
    assert len({*recorder.CONTROLS, *recorder.BY_HAND}) == 16
    assert set(recorder.CONTROLS) <= set(stack.control_names(Project(ROOT)))
    for name, environment in recorder.BY_HAND.items():
        assert bool(environment.program) != bool(environment.probe), name
        compile(environment.program, name, "exec")
