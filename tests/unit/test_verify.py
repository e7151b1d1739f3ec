"""What speaks against a certificate: every doubt alone, and which advisory takes it back."""

from __future__ import annotations

import datetime

import pytest

from builder import certificate
from builder.advisory import Advisory
from builder.certificate import ProbeResult, Resource, Statement
from builder.machine import Hardware
from builder.publishing import verify
from builder.publishing.verify import Wanted

IMAGE, LOCK, SUITE = "sha256:" + "1" * 64, "sha256:" + "2" * 64, "sha256:" + "3" * 64
OTHER = "sha256:" + "4" * 64
DAY = datetime.date(2026, 3, 1)
NEXT = DAY + datetime.timedelta(days=1)
VERSIONS = {"tiny-lib": "1.0"}
WANTED = Wanted(IMAGE, LOCK, SUITE, VERSIONS, DAY)


def issued(subject: str = IMAGE, lock: str = LOCK, suite: str = SUITE, hardware: str = "Some CPU") -> Statement:
    return certificate.statement(
        subject=Resource(name="it", digest=certificate.bare(subject)), lock=lock, suite=suite,
        hardware=Hardware(hardware, 2), engine={"name": "docker"}, python="3.11.2",
        probes=[ProbeResult(name="alpha", outcome="passed"), ProbeResult(name="beta", outcome="not-run", reason="why")],
    ).dated(DAY)  # fmt: skip


def advisory(
    published: datetime.date, *, probe: str = "alpha", context: bool = False, versions: str = "<2"
) -> Advisory:
    affected = {"packages": {"tiny-lib": versions}} | ({"context": {"zero_stage": [3]}} if context else {})
    return Advisory.model_validate(
        {
            "id": "VETTED-9001", "summary": "it greets nobody", "details": "so", "severity": "crash",
            "published": published, "probes": [probe], "affected": [affected], "fix": [{"note": "wait"}],
            "evidence": {"kind": "executed", "says": "so"},
            "references": [{"type": "REPORT", "url": "https://example.org/1"}],
        }
    )  # fmt: skip


def test_nothing_speaks_against_a_valid_certificate() -> None:
    assert verify.against(issued(), WANTED, [advisory(NEXT, versions=">=2")]) == []


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (issued(subject=OTHER), f"it speaks of another subject\nexpected {IMAGE}\ngot      {OTHER}"),
        (issued(lock=OTHER), f"it was earned with another lock\nexpected {LOCK}\ngot      {OTHER}"),
        (issued(suite=OTHER), f"it was earned with another suite\nexpected {SUITE}\ngot      {OTHER}"),
        (issued().dated(datetime.date(2025, 1, 1)), "it expired on 2025-04-01: certify again"),
    ],
)
def test_every_doubt_stands_alone(statement: Statement, said: str) -> None:
    assert verify.against(statement, WANTED, []) == [said]


def test_a_certificate_without_a_subject_or_with_two_is_in_doubt() -> None:
    for subjects in ([], [Resource(name="it")], [*issued().subject, *issued().subject]):
        (doubt,) = verify.against(issued().model_copy(update={"subject": subjects}), WANTED, [])
        assert doubt.startswith("it speaks of another subject")


EARLIER = DAY - datetime.timedelta(days=1)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (advisory(EARLIER), False),
        (advisory(DAY), True),  # which came first on that day is not known
        (advisory(NEXT), True),
        (advisory(NEXT, probe="gamma"), True),
        (advisory(NEXT, versions=">=2"), False),
        (advisory(EARLIER, context=True), False),
        (advisory(DAY, context=True), False),
        (advisory(NEXT, context=True), True),
        (advisory(NEXT, context=True, probe="beta"), False),  # which did not run: nothing was claimed
        (advisory(NEXT).model_copy(update={"withdrawn": NEXT}), False),
    ],
)
def test_an_advisory_withdraws_what_it_covers(one: Advisory, expected: bool) -> None:
    assert verify.withdraws(one, issued(), VERSIONS) is expected
    assert bool(verify.against(issued(), WANTED, [one])) is expected


@pytest.mark.parametrize(
    "subject",
    [None, [], {}, [{}], [{"digest": "1"}], [{"digest": {"sha256": "4" * 64}}], [{"digest": {"sha512": "1" * 64}}],
     [{"digest": {"sha256": "1" * 64}}] * 2],
)  # fmt: skip
def test_what_does_not_speak_of_the_image(subject: object) -> None:
    assert not verify.speaks_of({"subject": subject}, IMAGE)
    assert verify.speaks_of({"subject": [{"digest": {"sha256": "1" * 64}}]}, IMAGE)
