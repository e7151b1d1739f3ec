"""What is said of a failed probe, from the advisories."""

from __future__ import annotations

from builder import console
from builder.certify.certificate import ProbeResult
from builder.intent import advisory, explanation
from tests.conftest import BAD_RUN, TINY, Small
from tests.unit.conftest import Command
from tests.unit.intent.records import (
    CERTAIN,
    ID,
    PACKAGES,
    RECORD,
    VERSIONS,
    WHERE,
    write,
)


def explained(small: Small, *records: str, output: str = "") -> list[tuple[str, str, bool]]:
    for number, text in enumerate(records, start=1):
        write(small, text.replace(ID, f"VETTED-000{number}"), f"VETTED-000{number}")
    explanations = explanation.explain(advisory.load_all(small.project), "beta", output, VERSIONS)
    return [(entry.advisory.id[-1], entry.judgement, entry.symptomatic) for entry in explanations]


def test_what_is_known_of_a_red_probe_begins_with_what_the_versions_match(small: Small) -> None:
    away = CERTAIN.replace(PACKAGES, 'packages = { trl = ">=1" }')
    other = CERTAIN.replace('["beta"]', '["alpha"]')
    assert explained(small, away, RECORD, CERTAIN, other) == [
        ("3", "certain", False), ("2", "possible", False), ("1", "no", False),
    ]  # fmt: skip


def test_a_symptom_brings_in_advisories_that_do_not_name_the_probe(small: Small) -> None:
    other = RECORD.replace('["beta"]', '["alpha"]')
    silent = RECORD.replace("'greets n\\w+'", "'never said'")
    assert explained(small, silent, other, output="first\nit greets nobody\nlast") == [
        ("2", "possible", True), ("1", "possible", False),
    ]  # fmt: skip
    assert explained(small, silent, other) == [("1", "possible", False)]


RED = ProbeResult(
    name="beta", matters="nobody learns", outcome="failed", reason="it greets nobody", log_tail="one\ntwo\n"
)


def printed(small: Small, red: ProbeResult, *records: str) -> list[str]:
    for number, text in enumerate(records, start=1):
        write(small, text.replace(ID, f"VETTED-000{number}"), f"VETTED-000{number}")
    return [line.plain for line in console.reasons([red], VERSIONS, advisory.load_all(small.project))]


def test_a_red_row_says_why_it_matters_what_is_known_and_the_way_out(small: Small) -> None:
    away = CERTAIN.replace(PACKAGES, 'packages = { trl = ">=1" }')
    assert printed(small, RED, CERTAIN, away) == [
        "beta: failed: it greets nobody",
        "  why it matters: nobody learns",
        "  known: VETTED-0001 matches: Tiny 1.0 greets nobody",
        "         fix: tiny-lib>=2",
        "  │ one",
        "  │ two",
    ]


def test_what_depends_on_a_context_says_on_which_unless_its_symptom_was_seen(small: Small) -> None:
    assert printed(small, RED, RECORD)[2:4] == [
        "  known: VETTED-0001 matches: Tiny 1.0 greets nobody",
        "         fix: tiny-lib>=2",
    ]
    said_less = RED.model_copy(update={"reason": None})
    either = RECORD.replace("[[fix]]", f'[[affected]]\n{PACKAGES}\ncontext = {{ gpus = ">=2" }}\n\n[[fix]]')
    assert printed(small, said_less, either)[2:6] == [
        "  known: VETTED-0001 may match: Tiny 1.0 greets nobody",
        "         if: zero stage 3, bf16 true, num_generations >=2",
        "         or if: gpus >=2",
        "         fix: tiny-lib>=2",
    ]


def test_what_does_not_match_was_seen_before_and_is_said_three_times_at_most(small: Small) -> None:
    away = CERTAIN.replace(PACKAGES, 'packages = { trl = ">=1", peft = "*" }')
    assert printed(small, RED, away, away, away, away, away)[2:5] == [
        f"  seen before with trl>=1 + peft: VETTED-000{number} Tiny 1.0 greets nobody" for number in (1, 2, 3)
    ]
    assert len(printed(small, RED, away, away, away, away, away)) == 7


def test_a_probe_that_was_not_run_has_nothing_to_be_known_of(small: Small) -> None:
    idle = RED.model_copy(update={"outcome": "not-run"})
    assert printed(small, idle, CERTAIN) == ["beta: not-run: it greets nobody"]


def test_certify_prints_what_is_known_of_a_red_probe(command: Command, wheels: Small) -> None:
    write(wheels, CERTAIN.replace(PACKAGES, 'packages = { tiny-lib = "<2" }'))
    wheels.suite(BAD_RUN.replace('reason="the reward fell"', 'reason="the reward fell", matters="it unlearns"'))
    answer = command(wheels.root, "certify", TINY, "--engine", "host")
    assert answer.code == 1
    assert "  why it matters: it unlearns\n" in answer.out
    assert f"  known: {ID} matches: Tiny 1.0 greets nobody\n         fix: tiny-lib>=2\n" in answer.out


def test_a_broken_advisory_is_said_before_any_work_begins(command: Command, small: Small) -> None:
    write(small, RECORD.replace("summary", "sumary"))
    answer = command(small.root, "certify", TINY, "--engine", "host")
    assert (answer.code, answer.out) == (3, "")
    assert f"{WHERE}: `sumary`: unknown key" in answer.err
    assert not (small.project.state / "host").exists()
