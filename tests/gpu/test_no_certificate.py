"""A GPU that is not there earns no certificate, whatever the driver's tools say of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builder.base import project, sources
from builder.certify import certify
from builder.certify.certify import Options
from tests.conftest import ROOT
from tests.gpu import stub
from tests.gpu.conftest import CudaStack


@pytest.mark.parametrize("nodes", [("nvidia0", "nvidia-uvm"), ()], ids=["a device", "no device"])
def test_a_machine_that_only_claims_a_gpu(
    nodes: tuple[str, ...], cuda_stack: CudaStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\necho 'NVIDIA H200, 580.95.05, GPU-00000000'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine = stub.machine(tmp_path / "machine", cuda_stack.libraries, nodes=nodes)
    home, lock, root, scratch = project.Project(ROOT), cuda_stack.lock, tmp_path / "suite", tmp_path / "scratch"
    scratch.mkdir()
    identity = sources.copy(home.smoke, root)
    subject = certify.on_host(lock, cuda_stack.environment, root, scratch)
    environment = {**machine.environment, **subject.runner.environment, "LD_LIBRARY_PATH": str(machine.folder)}
    runner = replace(subject.runner, command=machine.command(subject.runner.command), environment=environment)
    statement = certify.examine(
        lock, Options("cuda", "host"), replace(subject, runner=runner), identity, scratch, lambda _: None
    )
    assert (statement.hardware, statement.predicate.result) == ("1x NVIDIA H200, driver 580.95.05", "FAILED")
    assert statement.predicate.issued is None
