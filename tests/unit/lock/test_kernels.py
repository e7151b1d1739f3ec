"""gpus.json, and what follows from it: by command, in the documents, and in an image."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from builder.base import errors
from builder.base.project import Project
from builder.image import context
from builder.intent import stack
from builder.lock import gpus, kernels, lockfile
from builder.lock.kernels import Kernels, Library
from builder.pages import gpus as page
from tests.conftest import TINY, Small
from tests.unit.conftest import Command
from tests.unit.lock import fatbins
from tests.unit.lock.fatbins import ARCHITECTURE, CUBIN, PTX, fatbin, image

BASE = [image(CUBIN, 75), image(CUBIN, 80), image(PTX, 80)]
TORCH = fatbins.library([fatbin(*BASE), fatbin(*BASE), fatbin(*BASE), fatbin(image(CUBIN, 90, ARCHITECTURE))])
VLLM = fatbins.library([fatbin(image(CUBIN, 80), image(CUBIN, 120))])
CONTENT = {
    "nvidia-cuda-runtime": ("13.0.96", {"nvidia/lib/libcudart.so.13": fatbins.library([])}),
    "torch": ("2.13.0", {"torch/lib/libtorch_cuda.so": TORCH, "torch/include/a.cuh": b""}),
    "triton": ("3.7.1", {"triton/backends/nvidia/bin/ptxas": b""}),
    "vllm": ("0.31.0", {"vllm/_C_stable_libtorch.abi3.so": VLLM}),
}


@pytest.fixture
def cuda(small: Small, tmp_path: Path) -> Small:
    """A stack for CUDA whose locked wheels are all there."""
    wheels = [next(small.wheelhouse.glob("tiny_lib-1.0*"))]
    before = lockfile.intent(small.lock.stack)
    small.edit("stack.toml", 'device = "cpu"', 'device = "cuda"')
    small.edit("lock.toml", before, lockfile.intent(small.lock.stack))
    requirements = small.file("requirements.txt")
    lines = []
    for name, (version, files) in CONTENT.items():
        wheels.append(fatbins.wheel(tmp_path / "made", name, version, files))
        lines.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheels[-1].read_bytes()).hexdigest()}\n")
    requirements.write_text(requirements.read_text() + "".join(lines))
    for wheel in wheels:
        folder = small.project.state / "wheels" / hashlib.sha256(wheel.read_bytes()).hexdigest()
        folder.mkdir(parents=True)
        shutil.copy(wheel, folder)
    return small


def test_the_command_reads_the_locked_files_and_keeps_what_it_read(cuda: Small, command: Command) -> None:
    answer = command(cuda.root, "gpus", TINY)
    assert answer.code == 3 and f"next: vetted gpus {TINY} --record" in answer.err
    assert command(cuda.root, "gpus", TINY, "--record").code == 0
    path = kernels.path(cuda.project, TINY)
    first = path.read_bytes()
    assert json.loads(first) == {
        "lock": cuda.lock.digest,
        "cuda": "13.0",
        "driver": "580.65.06",
        "sources": {"triton": 1},
        "libraries": [
            ["torch", "torch/lib/libtorch_cuda.so", {"sm_75": 3, "sm_80": 3, "sm_90a": 1, "compute_80": 3}],
            ["vllm", "vllm/_C_stable_libtorch.abi3.so", {"sm_80": 1, "sm_120": 1}],
        ],
    }
    assert command(cuda.root, "gpus", TINY, "--record").code == 0
    assert path.read_bytes() == first
    answer = command(cuda.root, "gpus", TINY, "--json")
    assert answer.json["parts"] == {"torch": ["sm_75", "sm_80", "compute_80"], "vllm": ["sm_80", "sm_120"]}
    verdicts = {gpu: row["stack"] for gpu, row in answer.json["gpus"].items()}
    assert verdicts["A100"] == verdicts["L4, RTX 4090"] == "native"
    assert verdicts["T4"] == verdicts["H100, H200, H20"] == "absent", "vllm has nothing for it"
    assert verdicts["RTX 5090, RTX PRO 6000"] == "PTX", "torch has nothing else for it"
    assert answer.json["gpus"]["RTX 5090, RTX PRO 6000"]["driver"] == "580.65.06"


def test_a_stack_for_cpus_has_no_kernels(small: Small, command: Command) -> None:
    answer = command(small.root, "gpus", TINY)
    assert answer.code == 3 and "is a stack for CPUs" in answer.err
    assert "kernels" not in context.description(small.project, small.lock)
    assert command(small.root, "list", "--gpus", "--json").json == {}


def test_the_kernels_of_another_lock_do_not_count(cuda: Small, command: Command) -> None:
    command(cuda.root, "gpus", TINY, "--record")
    described = context.description(cuda.project, cuda.lock)["kernels"]
    assert described == {
        "needed": {"torch": ["sm_75", "sm_80", "compute_80"], "vllm": ["sm_80", "sm_120"]}, "others": {},
    }  # fmt: skip
    assert kernels.stale(cuda.project, cuda.lock) == []
    rows = command(cuda.root, "list", "--gpus", "--json").json
    assert rows[TINY]["A100"] == "native, driver ≥ 580.65.06"
    assert rows[TINY]["V100"] == "absent"
    cuda.edit("lock.toml", "1700000000", "1700000001")
    (finding,) = kernels.stale(cuda.project, cuda.lock)
    assert finding.fix == f"vetted gpus {TINY} --record"
    assert "kernels" not in context.description(cuda.project, cuda.lock)
    assert command(cuda.root, "list", "--gpus", "--json").json[TINY]["A100"] == page.STALE
    answer = command(cuda.root, "gpus", TINY)
    assert answer.code == 1 and "was read from another lock" in answer.err


def test_the_documents_say_what_was_only_read(cuda: Small, command: Command) -> None:
    assert page.NOT_READ in page.gpus(cuda.project)
    command(cuda.root, "gpus", TINY, "--record")
    rows = {line.split(" | ")[0].strip("| "): line for line in page.gpus(cuda.project).splitlines()}
    assert rows["A100"].endswith("| native, driver ≥ 580.65.06 | audited, not certified |")
    assert rows["V100"].endswith("| absent | not certified |")
    assert rows["RTX 5090, RTX PRO 6000"].split(" | ")[2].startswith("PTX (slow first start)")
    assert page.ARM in rows["DGX Spark"]
    assert f"| `{TINY}` | triton | JIT from source |" in page.libraries(cuda.project)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"lock": 1, "cuda": "", "sources": {}, "libraries": []}',
             '{"lock": "", "cuda": "", "sources": {}, "libraries": [["torch", "a.so", {"sm_80": "many"}]]}',
             '{"lock": "", "cuda": "", "sources": {}, "libraries": [["torch"]]}'],
)  # fmt: skip
def test_a_damaged_file_is_an_error_with_its_name(cuda: Small, text: str) -> None:
    kernels.path(cuda.project, TINY).write_text(text)
    with pytest.raises(errors.BadInputError, match=r"gpus\.json") as caught:
        kernels.load(cuda.project, TINY)
    assert caught.value.next_step == f"vetted gpus {TINY} --record"


def test_a_few_kernels_for_one_gpu_are_not_support_for_it() -> None:
    """vllm 0.7.2 has an empty kernel as PTX for 5.2, which would run everywhere."""
    library = Library("vllm", "vllm/_C.abi3.so", {"sm_52": 1, "sm_80": 31, "sm_90": 31, "sm_90a": 15, "compute_52": 1})
    parts = gpus.architectures(Kernels("", "12.4", (library,), {}))
    assert parts == {"vllm": ["sm_80", "sm_90"]}
    assert gpus.worst(gpus.verdicts(parts, (10, 0))) == "absent"


def test_a_library_that_is_not_where_it_was_is_no_support() -> None:
    library = Library("vllm", "vllm/_D.so", {"sm_80": 1})
    assert gpus.worst(gpus.verdicts(gpus.architectures(Kernels("", "13.0", (library,), {})), (8, 0))) == "absent"


def test_certified_is_what_ran_on_such_a_gpu() -> None:
    (h100,) = [gpu for gpu in gpus.GPUS if "H200" in gpu.models]
    assert gpus.certified(h100, ["1x NVIDIA H200, driver 580.95.05 (image)"])
    assert not gpus.certified(h100, ["AMD EPYC, 2 cores (image)", "1x NVIDIA B200, driver 580.95.05 (lock)"])


def test_every_committed_cuda_lock_was_read(real: Project) -> None:
    for name in stack.shipped(real):
        lock = lockfile.load(real, name)
        read = kernels.of_lock(real, lock)
        assert (read is not None) == (kernels.cuda(lock) is not None), name
        if read:
            assert kernels.text(read) == kernels.path(real, name).read_text()
            assert set(gpus.architectures(read)) == {part.title for part in gpus.PARTS}, name
