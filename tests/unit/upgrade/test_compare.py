"""The numbers of two runs, compared: what is worse, and beyond which tolerance."""

from __future__ import annotations

import json

import pytest

from builder.certify import certificate
from builder.certify.certificate import Measurement, ProbeResult
from builder.upgrade import compare
from tests.conftest import Small


def statement(small: Small, probes: list[ProbeResult]) -> certificate.Statement:
    return certificate.read(small.issue(probes=probes))


def probe(seconds: float = 1.0, memory: float = 100.0, share: float = 0.1) -> ProbeResult:
    return ProbeResult(
        name="alpha", outcome="passed", seconds=seconds, peak_memory_mib=memory,
        measurements=[Measurement(name="loss", value=share, bound={"at_most": 1}, headline=True)],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("after", "what"),
    [
        (probe(), []),
        (probe(seconds=4.0), []),  # within what a busy machine does
        (probe(seconds=9.0), ["seconds"]),
        (probe(memory=690.0), ["peak memory of all probes, added, in MiB"]),
        (probe(memory=600.0), []),
        (probe(memory=710.0), ["peak memory in MiB", "peak memory of all probes, added, in MiB"]),
        (probe(share=0.55), []),
        (probe(share=0.65), ["loss, as a share of its bound,"]),
    ],
)
def test_a_number_is_worse_beyond_its_tolerance_only(small: Small, after: ProbeResult, what: list[str]) -> None:
    before = statement(small, [probe()])
    assert [regression.what for regression in compare.regressions(before, statement(small, [after]))] == what


def test_on_other_hardware_only_agreement_is_compared(small: Small) -> None:
    before = statement(small, [probe()])
    text = before.to_json().replace(str((before.resource("hardware").annotations or {})["class"]), "another machine")
    other = certificate.Statement.model_validate(json.loads(text))
    after = statement(small, [probe(seconds=99.0, memory=9999.0, share=0.9)])
    assert [regression.what for regression in compare.regressions(other, after)] == ["loss, as a share of its bound,"]
    assert compare.comparable(other, after).startswith("other hardware: another machine")
