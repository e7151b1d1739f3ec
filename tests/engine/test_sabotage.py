"""Every break of tests/sabotage, in the certified stack: its probe fails by the bounds, or for the reason, named."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

import pytest

from builder.certify import suite
from builder.certify.certificate import ProbeResult
from smoke import probe
from tests import parts
from tests.engine.conftest import ROOT, Workshop

SABOTAGE = ROOT / "tests" / "sabotage"
BREAKS = {
    name: importlib.import_module(f"tests.sabotage.{file.path.stem}") for name, file in probe.discover(SABOTAGE).items()
}


@pytest.fixture(scope="module")
def results(depot: Workshop, environment: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ProbeResult]:
    """What came of each, from one run of the suite's runner."""
    lock, scratch = depot.lock, tmp_path_factory.mktemp("sabotage")
    runner = suite.on_host(environment, ROOT, scratch / "run")
    runner = dataclasses.replace(runner, command=[*runner.command, "--probes", str(SABOTAGE)])
    request = suite.Request(device=lock.stack.device, distributions=lock.versions)
    answer = suite.run(runner, request, scratch, lambda _: None)
    return {result.name: result for result in answer.results}


@pytest.mark.parametrize("name", BREAKS)
def test_probe_notices(name: str, results: dict[str, ProbeResult]) -> None:
    if needed := getattr(BREAKS[name], "CPU", ""):
        parts.cpu(needed)
    result = results[name]
    assert result.outcome == "failed", f"{result.outcome}: {result.reason}"
    broken = {measurement.name for measurement in result.measurements if not measurement.ok}
    assert set(BREAKS[name].CAUGHT_BY) <= broken, result.reason
    assert getattr(BREAKS[name], "REASON", "") in (result.reason or "")
