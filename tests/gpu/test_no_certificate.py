"""A GPU that is not there earns no certificate, whatever the driver's tools say of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builder.base import project
from tests.conftest import ROOT
from tests.gpu import attempt
from tests.gpu.conftest import CudaStack
from tests.gpu.machines import FAKES

BY_TITLE = {fake.title: fake for fake in FAKES}


def test_a_machine_that_only_claims_a_gpu(cuda_stack: CudaStack, tmp_path: Path) -> None:
    """tests/gpu/test_first_contact.py has one with device files."""
    fake = replace(BY_TITLE["H200 without device files"], probes=())
    statement = attempt.certify_on(
        fake, project.Project(ROOT), cuda_stack.lock, cuda_stack.environment, cuda_stack.libraries, tmp_path / "new"
    )
    assert (statement.hardware, statement.predicate.result) == ("1x NVIDIA H200, driver 580.95.05", "FAILED")
    assert statement.predicate.issued is None
    reasons = {result.name: result.reason for result in statement.predicate.probes}
    assert reasons["gemm-sweep"] == "needs 1 GPU(s), found 0"


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("H200, an old driver", "The NVIDIA driver on your system is too old (found version 12040)"),
        ("H200 in WSL", "No CUDA GPUs are available"),
    ],
)
def test_a_probe_says_why_it_cannot_use_the_gpu(
    title: str, words: str, cuda_stack: CudaStack, tmp_path: Path
) -> None:  # fmt: skip
    fake = replace(BY_TITLE[title], probes=("nf4-parity",))
    statement = attempt.certify_on(
        fake, project.Project(ROOT), cuda_stack.lock, cuda_stack.environment, cuda_stack.libraries, tmp_path / "new"
    )
    (result,) = statement.predicate.probes
    assert result.reason is not None and words in result.reason
