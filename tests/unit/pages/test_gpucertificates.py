"""What ran on a GPU, in the documents: only what a valid certificate says."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base.machine import Hardware
from builder.certify.certificate import Measurement, ProbeResult
from builder.lock import gpus
from builder.pages import gpucertificates
from tests.conftest import GOOD_RUN, TINY, Small, runner

H200 = Hardware("Xeon", 16, ("NVIDIA H200",), "580.1")
BOUND = {"name": "error", "unit": "nats", "bound": {"at_most": 1}, "why": "it is", "headline": True}
PROBES = [
    ProbeResult(
        name=name, outcome="passed", matters="it does", seconds=2.34,
        measurements=[Measurement.model_validate({**BOUND, "value": value})],
    )
    for name, value in (("alpha", 0.25), ("beta", 0.5))
]  # fmt: skip


@pytest.fixture
def issued(small: Small) -> Path:
    small.edit("stack.toml", 'device = "cpu"', 'device = "cuda"')
    (small.project.smoke / "__main__.py").write_text(runner(BOUND) + GOOD_RUN)
    return small.issue(hardware=H200, probes=PROBES)


@pytest.mark.usefixtures("issued")
def test_what_ran_on_a_gpu_is_shown_with_its_numbers(small: Small) -> None:
    head, _, _, _, *rows = gpucertificates.certificates(small.project).splitlines()
    assert head.startswith(
        f"**`{TINY}` on 1x NVIDIA H200, driver 580.1**, 16 cores, Debian, Python 3.11.2, engine host"
    )
    assert head.endswith(": 2 probes passed, none is red.")
    assert rows == ["| `alpha` | `error` 0.25 nats | ≤ 1 | 2.3 |", "| `beta` | `error` 0.5 nats | ≤ 1 | 2.3 |"]


@pytest.mark.usefixtures("issued")
def test_a_certificate_of_an_earlier_suite_says_so(small: Small) -> None:
    small.suite("# another suite")
    assert "none is red. **The suite or the image has changed since**" in gpucertificates.certificates(small.project)


def test_a_certificate_that_does_not_hold_is_not_shown(small: Small, issued: Path) -> None:
    issued.write_text(issued.read_text().replace('"value": 0.5', '"value": 1.5'))
    assert gpucertificates.certificates(small.project) == "None yet.\n"


def test_a_certificate_without_a_gpu_is_not_shown(small: Small) -> None:
    small.issue()
    assert gpucertificates.certificates(small.project) == "None yet.\n"


def test_a_gpu_is_certified_by_its_own_model() -> None:
    (hopper,) = [gpu for gpu in gpus.GPUS if "H200" in gpu.models]
    assert gpus.certified(hopper, ["1x NVIDIA H200, driver 580.1 (lock)"]) == ["H200"]
    assert gpus.certified(hopper, ["1x NVIDIA H20, driver 580.1 (lock)", "AMD EPYC, 2 cores"]) == ["H20"]
    assert gpus.certified(hopper, ["8x NVIDIA B200, driver 580.1 (image)"]) == []
