"""What later releases fixed."""

from __future__ import annotations

from doctor.answer import diagnose
from tests.unit.doctor.kit import only, reported


def test_what_a_later_release_repaired_is_a_place_to_look() -> None:
    case = reported({"trl": "0.14.0"}, "GRPO failed when training with FSDP and Liger under DDP")
    finding = only(case, "repaired-later")
    assert (finding.confidence, finding.ranges) == ("possible", {"trl": ["<0.18.0"]})
    assert finding.decide == ["https://github.com/huggingface/trl/pull/3260"]
    later = reported({"trl": "0.18.0"}, case.error)
    assert all(
        "3260" not in finding.decide[0] for finding in diagnose.findings(later) if finding.rule == "repaired-later"
    )
