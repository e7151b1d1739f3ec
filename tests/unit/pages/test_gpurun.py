"""A report from a GPU, in the documents: what passed, what did not, and what could not run."""

from __future__ import annotations

from builder.base.machine import Hardware
from builder.certify import certificate
from builder.certify.certificate import Measurement, ProbeResult, Resource
from builder.pages import evidence, gpurun
from scripts import gpu_run
from tests.conftest import Small

NUMBER = Measurement(name="error", value=0.25, unit="nats", bound={"at_most": 1}, headline=True)
PROBES = [
    ProbeResult(name="plain", outcome="passed", measurements=[NUMBER], seconds=2.34),
    ProbeResult(name="red", outcome="failed", reason="error is 3 | at most 1\nat line 7", measurements=[NUMBER]),
    ProbeResult(name="pair", outcome="not-run", reason="needs 2 GPU(s), found 1"),
    ProbeResult(name="three", outcome="not-run", reason="needs 2 GPU(s), found 1"),
]
REPORT = certificate.statement(
    subject=Resource(name="it", digest=certificate.bare("sha256:" + "1" * 64)), lock="sha256:" + "2" * 64,
    suite="sha256:" + "3" * 64, hardware=Hardware("CPU", 16, ("NVIDIA H100",), "580.1"),
    engine={"name": "host", "system": "Ubuntu 24.04"}, python="3.11.2", probes=PROBES,
)  # fmt: skip


def test_the_report_of_a_run_on_a_gpu_is_shown_whole(small: Small) -> None:
    assert gpurun.summary(small.project) == gpurun.results(small.project) == "Not measured yet.\n"
    record = gpu_run.of(REPORT, {"torch": "2.11.0", "numpy": "2.4"}, "2026-11-27", "All but vLLM")
    evidence.store(small.project, record.FILE, record.model_dump(mode="json"), small.scratch())
    assert gpurun.summary(small.project) == (
        "**1 passed, 1 red, 2 not run**, without a certificate. All but vLLM: torch 2.11.0; 2 distributions, "
        "Python 3.11.2, Ubuntu 24.04. Measured on 2026-11-27 (1x NVIDIA H100, driver 580.1, 16 cores) by "
        "`python3 run.pyz`; suite `333333333333`, an earlier suite.\n"
    )
    _, _, *rows, _, _, _, left = gpurun.results(small.project).splitlines()
    assert rows == [
        "| `plain` | passed | `error` 0.25 nats | ≤ 1 | 2.3 |",
        "| `red` | failed | error is 3 &#124; at most 1 | – | 0.0 |",
    ]
    assert left == "- needs 2 GPU(s), found 1: `pair`, `three`"
