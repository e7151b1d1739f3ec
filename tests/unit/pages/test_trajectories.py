"""Golden trajectories in the documents: which records there are, and the verdict on every pair of them."""

from __future__ import annotations

from builder.pages import evidence, trajectories
from builder.trajectory import record
from tests.conftest import TINY, Small
from tests.unit.trajectory import kit


def test_records_are_listed_and_pairs_have_a_verdict(small: Small) -> None:
    for part in (trajectories.alarms, trajectories.verdicts):
        assert part(small.project) == "Not measured yet.\n"
    made = kit.make(1, stack=TINY)
    path = record.path(small.project, TINY, made.place)
    path.parent.mkdir()
    path.write_text(made.to_json())
    head, _, row, *rest = trajectories.verdicts(small.project).splitlines()
    assert head == "| stack | device | hardware | engine | seeds | date |"
    assert row == f"| `{TINY}` | cpu | a machine | host | 12 | 2026-11-24 |"
    assert rest == ["", "No pair is compared yet."]

    measured = {
        "stack": TINY, "seeds": 40, "steps": 60, "size": 12, "pairs": 30, "disjoint": False, "alarms": 0,
        "smallest_p": 0.09, "noticed": {"kl": [0.5, 2.0]},
        "verdicts": [{"sentence": "a → b: the training changes", "good": False, "p": 0.0005}],
    }  # fmt: skip
    evidence.record(small.project, "trajectories", "it", measured, small.scratch())
    assert trajectories.verdicts(small.project).endswith("| **changes** | a → b: the training changes |\n")
    text = trajectories.alarms(small.project)
    assert text.startswith(f"**0 alarms** in 30 pairs of groups of 12 seeds of `{TINY}`, drawn at random from 40; ")
    assert "| KL | 2 | 0.5 |" in text
