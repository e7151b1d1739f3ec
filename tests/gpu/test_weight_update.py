"""A weight update of TRL's server mode on a machine with two fake H200s, with the CUDA stack's own NCCL.

It comes as far as `ncclCommInitRank`: there both have found each other, on a loopback interface alone, and a GPU is
needed. tests/engine/test_vllm_server.py has all that comes after it, with another carrier of the weights.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import parts
from tests.conftest import ROOT
from tests.engine.test_bundle import ALONE
from tests.gpu import stub
from tests.gpu.conftest import CudaStack
from tests.gpu.stub import H200, Machine

NO_GPU = "RuntimeError: No CUDA GPUs are available"
BOTH = 'cd "$0" && "$@" 1 > 1.json 2> 1.log & cd "$0" && "$@" 0 > 0.json 2> 0.log; code=$?; wait $! && exit $code'


@pytest.fixture(scope="module")
def pair(cuda_stack: CudaStack, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return stub.machine(tmp_path_factory.mktemp("pair") / "machine", cuda_stack.libraries, gpus=(H200,) * 2)


def alone(machine: Machine, argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program on a machine without a network."""
    parts.programs("unshare")
    command = ["unshare", "--net", sys.executable, "-I", "-c", ALONE, "/usr/bin/env", *machine.command(argv)]
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "HOME": str(machine.folder), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env={**machine.environment, **quiet}, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def ranks(cuda_stack: CudaStack, pair: Machine, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the trainer and the server say."""
    folder = tmp_path_factory.mktemp("ranks")
    script = [
        str(cuda_stack.environment / "bin" / "python"),
        "-W",
        "ignore",
        str(Path(__file__).with_name("weights.py")),
    ]
    done = alone(pair, ["/bin/sh", "-c", BOTH, str(folder), *script])
    logs = "".join((folder / f"{rank}.log").read_text() for rank in (0, 1))
    assert done.returncode == 0, done.stderr + logs
    return [json.loads((folder / f"{rank}.json").read_text().splitlines()[-1]) for rank in (0, 1)]


def test_trl_asks_for_its_gpu_before_it_asks_the_server_to_join(ranks: list[dict[str, Any]]) -> None:
    trainer, _ = ranks
    assert trainer["TRL"] == NO_GPU and trainer["posted"] == []


def test_both_meet_on_a_loopback_interface_and_have_one_identity_of_nccl(ranks: list[dict[str, Any]]) -> None:
    assert [rank["met"] for rank in ranks] == [[0, 1], [0, 1]]
    (identity,) = {rank["identity"] for rank in ranks}
    assert len(identity) == 256 and set(identity) != {"0"}


def test_the_first_thing_that_nccl_cannot_do_without_a_gpu_is_to_join(ranks: list[dict[str, Any]]) -> None:
    assert {rank["vLLM"] for rank in ranks} == {NO_GPU}
    assert {rank["NCCL"].partition(" (")[0] for rank in ranks} == {"RuntimeError: NCCL error: unhandled cuda error"}
