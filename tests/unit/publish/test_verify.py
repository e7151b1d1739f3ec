"""Which advisory withdraws a certificate, and which statements are about an image."""

from __future__ import annotations

import datetime
import json

import pytest

from builder.base.machine import Hardware
from builder.certify import certificate, judgement
from builder.certify.certificate import ProbeResult, Resource, Statement
from builder.intent.advisory import Advisory
from builder.publish import verify
from builder.publish.signing import Envelope
from builder.publish.verify import SignedStatement

IMAGE, LOCK, SUITE = "sha256:" + "1" * 64, "sha256:" + "2" * 64, "sha256:" + "3" * 64
DAY = datetime.date(2026, 3, 1)
NEXT = DAY + datetime.timedelta(days=1)
VERSIONS = {"tiny-lib": "1.0"}


def issued() -> Statement:
    return certificate.statement(
        subject=Resource(name="it", digest=certificate.bare(IMAGE)), lock=LOCK, suite=SUITE,
        hardware=Hardware("Some CPU", 2), engine={"name": "docker"}, python="3.11.2",
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


EARLIER = DAY - datetime.timedelta(days=1)


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        (advisory(EARLIER), True),  # it was known, and the suite did not see it
        (advisory(DAY), True),
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
def test_an_advisory_withdraws_what_it_covers(published: Advisory, expected: bool) -> None:
    assert judgement.withdraws(published, issued(), VERSIONS) is expected


@pytest.mark.parametrize(
    "subject",
    [None, [], {}, [{}], [{"digest": "1"}], [{"digest": {"sha256": "4" * 64}}], [{"digest": {"sha512": "1" * 64}}],
     [{"digest": {"sha256": "1" * 64}}] * 2],
)  # fmt: skip
def test_what_is_not_about_the_image(subject: object) -> None:
    assert not verify.is_about({"subject": subject}, IMAGE)
    assert verify.is_about({"subject": [{"digest": {"sha256": "1" * 64}}]}, IMAGE)


def statement(kind: str, predicate: object) -> SignedStatement:
    return SignedStatement(Envelope(json.dumps({"predicate": predicate}).encode(), ()), kind)


@pytest.mark.parametrize(
    ("bill", "origin"),
    [
        ({}, {"buildDefinition": {"externalParameters": {"stack": "tiny", "lock": LOCK}}}),
        ({"metadata": {"properties": [{"name": "vetted:lock", "value": LOCK}]}}, {}),
    ],
)
def test_a_statement_that_is_signed_and_empty_is_in_doubt(bill: object, origin: object) -> None:
    doubts: list[str] = []
    verify._origin([statement("bill of materials", bill), statement("provenance", origin)], doubts)
    assert doubts and "was not made by Vetted" in doubts[0]
