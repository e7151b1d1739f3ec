"""What a person sees of numbers, bounds, results and reasons."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from builder import console
from builder.certify.certificate import Measurement, Outcome, ProbeResult
from builder.image.buildx import BuildStep

LOSS = Measurement(name="loss", value=0.123456, unit="nats", bound={"at_most": 1}, headline=True, why="it is small")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "yes"),
        (False, "no"),
        (3, "3"),
        (0.0, "0"),
        (0.123456, "0.1235"),
        (1.5e-7, "1.5e-07"),
        (120304.0, "120304"),
        (1e300, "1e+300"),
        ("nan", "nan"),
    ],
)
def test_a_number_is_shown_as_long_as_it_matters(value: object, shown: str) -> None:
    assert console.number(value) == shown


@pytest.mark.parametrize(
    ("measurement", "shown"),
    [
        (LOSS, "≤ 1"),
        (Measurement(name="x", value=1, bound={"at_least": 0.5, "at_most": 2}), "≥ 0.5 ≤ 2"),
        (Measurement(name="x", value=True, bound={"equals": True}), "= yes"),
        (Measurement(name="x", value=1), ""),
    ],
)
def test_a_bound_is_shown_by_its_signs(measurement: Measurement, shown: str) -> None:
    assert console.bound(measurement) == shown


def test_the_table_has_probe_outcome_number_bound_and_seconds() -> None:
    other = Measurement(name="steps", value=3, bound={"equals": 3})
    probes = [
        ProbeResult(name="alpha", outcome="passed", measurements=[other, LOSS], seconds=1.25),
        ProbeResult(name="beta", outcome="crashed", reason="killed by SIGFPE"),
    ]
    stream = io.StringIO()
    Console(file=stream, width=200).print(console.results_table(probes))
    head, alpha, beta = (line.split() for line in stream.getvalue().splitlines())
    assert head == ["probe", "outcome", "the", "number", "that", "matters", "bound", "seconds"]
    assert alpha == ["alpha", "passed", "loss", "0.1235", "nats", "≤", "1", "1.2"]
    assert beta == ["beta", "crashed", "0.0"]


@pytest.mark.parametrize("outcome", ["failed", "crashed", "timeout", "oom", "not-run"])
def test_what_did_not_pass_says_why(outcome: Outcome) -> None:
    bad = LOSS.model_copy(update={"value": 2.0, "ok": False})
    tail = "".join(f"line {number}\n" for number in range(20))
    probe = ProbeResult(name="beta", outcome=outcome, reason="too high", measurements=[bad], log_tail=tail)
    lines = [text.plain for text in console.reasons([ProbeResult(name="alpha", outcome="passed"), probe], {}, [])]
    assert lines[0] == f"beta: {outcome}: too high"
    assert lines[1] == "  loss is 2, bound ≤ 1 (it is small)"
    assert lines[2:] == ([] if outcome == "not-run" else [f"  │ line {number}" for number in range(12, 20)])


def test_progress_is_silent_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with console.spinner("resolving"), console.Working("x") as work:
        work.step(BuildStep(1, 2, "torch"))
        work.event({"event": "start", "probes": ["a"]})
        work.event({"event": "begin", "probe": "a"})
        work.event({"event": "end", "probe": "a", "outcome": "passed"})
    assert capsys.readouterr() == ("", "")
