"""gpus.json, and what follows from it: by command, in the documents, and in an image."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from builder.base import errors
from builder.base.project import Project
from builder.image import context
from builder.intent import stack
from builder.intent.platform import ARM64
from builder.lock import gpus, kernels, lockfile
from builder.lock.kernels import Kernels, Library
from builder.pages import gpus as page
from tests.conftest import TINY, Small, make_wheel
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
        "files": {entry.name: entry.sha256 for entry in cuda.lock.python},
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
    cuda.edit("requirements.txt", "triton==3.7.1", "triton==3.7.2")
    assert kernels.stale(cuda.project, cuda.lock) == []  # the file is the same
    cuda.edit("requirements.txt", "triton==3.7.2", "triton-next==3.7.2")
    (finding,) = kernels.stale(cuda.project, cuda.lock)
    assert finding.fix == f"vetted gpus {TINY} --record"
    assert "kernels" not in context.description(cuda.project, cuda.lock)
    assert command(cuda.root, "list", "--gpus", "--json").json[TINY]["A100"] == page.STALE
    answer = command(cuda.root, "gpus", TINY)
    assert answer.code == 1 and "was read from other files than the locked ones" in answer.err


def test_only_files_that_are_new_are_read_again(cuda: Small, command: Command, tmp_path: Path) -> None:
    command(cuda.root, "gpus", TINY, "--record")
    before = kernels.load(cuda.project, TINY)
    shutil.rmtree(cuda.project.state / "wheels")  # what was read is not needed again
    wheel = fatbins.wheel(tmp_path / "new", "another", "1.0", {"another/a.so": VLLM})
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (cuda.project.state / "wheels" / digest).mkdir(parents=True)
    shutil.copy(wheel, cuda.project.state / "wheels" / digest)
    lines = [line for line in cuda.file("requirements.txt").read_text().splitlines() if not line.startswith("triton")]
    cuda.file("requirements.txt").write_text("\n".join([*lines, f"another==1.0 --hash=sha256:{digest}"]) + "\n")
    assert kernels.stale(cuda.project, cuda.lock)
    assert command(cuda.root, "gpus", TINY, "--record").code == 0
    after = kernels.load(cuda.project, TINY)
    assert before is not None and after is not None
    assert after.libraries == (Library("another", "another/a.so", {"sm_80": 1, "sm_120": 1}), *before.libraries)
    assert (before.sources, after.sources) == ({"triton": 1}, {})
    assert kernels.stale(cuda.project, cuda.lock) == []


@pytest.fixture
def both(cuda: Small, tmp_path: Path) -> Small:
    """The same stack, locked for arm64 as well, where torch has a file of its own, without kernels for 7.5."""
    cuda.edit("stack.toml", 'debian = "bookworm"', 'debian = "bookworm"\nplatforms = ["amd64", "arm64"]')
    for file in ("requirements.txt", "debian.txt"):
        shutil.copy(cuda.file(file), cuda.file(ARM64.file(file)))
    native = fatbins.library([fatbin(image(CUBIN, 90), image(CUBIN, 120))])
    wheel = fatbins.wheel(tmp_path / "arm", "torch", "2.13.0", {"torch/lib/libtorch_cuda.so": native})
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (cuda.project.state / "wheels" / digest).mkdir()
    shutil.copy(wheel, cuda.project.state / "wheels" / digest)
    torch = {entry.name: entry.sha256 for entry in cuda.lock.python}["torch"]
    cuda.edit("requirements.arm64.txt", torch, digest)
    return cuda


def test_a_stack_for_two_processors_has_two_sets_of_kernels(both: Small, command: Command) -> None:
    command(both.root, "gpus", TINY, "--record")
    amd64 = kernels.path(both.project, TINY).read_bytes()
    answer = command(both.root, "gpus", TINY, "--platform", "arm64")
    assert answer.code == 3 and f"next: vetted gpus {TINY} --record --platform arm64" in answer.err
    arm = lockfile.load(both.project, TINY, ARM64)
    assert "kernels" not in context.description(both.project, arm)
    assert page.rows(both.project)[TINY]["DGX Spark"] == page.NOT_READ

    (folder,) = (both.project.state / "wheels").glob(both.lock.python[-1].sha256)
    shutil.rmtree(folder)  # vllm: the same file for both, and read already
    assert command(both.root, "gpus", TINY, "--record", "--platform", "arm64").code == 0
    assert kernels.path(both.project, TINY).read_bytes() == amd64
    read = kernels.of_lock(both.project, arm)
    assert read is not None and read.sources == {"triton": 1}
    assert gpus.architectures(read) == {"torch": ["sm_90", "sm_120"], "vllm": ["sm_80", "sm_120"]}
    described = context.description(both.project, arm)["kernels"]
    assert isinstance(described, dict) and described["needed"]["torch"] == ["sm_90", "sm_120"]
    assert page.rows(both.project)[TINY]["DGX Spark"] == "native, driver ≥ 580.65.06"
    assert page.rows(both.project)[TINY]["A100"] == "native, driver ≥ 580.65.06"
    assert f"| `{TINY}.arm64` | torch |" in page.libraries(both.project)
    row = next(line for line in page.gpus(both.project).splitlines() if line.startswith("| DGX Spark"))
    assert row.endswith(f"| audited, not certified; {page.ARM} |")


def test_kernels_for_arm64_of_another_lock_are_found_by_the_audit(both: Small, command: Command) -> None:
    command(both.root, "gpus", TINY, "--record", "--platform", "arm64")
    both.edit("requirements.arm64.txt", "triton==3.7.1", "triton-next==3.7.1")
    (finding,) = kernels.stale(both.project, lockfile.load(both.project, TINY, ARM64))
    assert finding.what == "gpus.arm64.json was read from other files than the locked ones"
    assert finding.fix == f"vetted gpus {TINY} --record --platform arm64"


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
    "text", ["", "[]", "{}", '{"files": 1, "cuda": "", "sources": {}, "libraries": []}',
             '{"files": {}, "cuda": "", "sources": {}, "libraries": [["torch", "a.so", {"sm_80": "many"}]]}',
             '{"files": {}, "cuda": "", "sources": {}, "libraries": [["torch"]]}'],
)  # fmt: skip
def test_a_damaged_file_is_an_error_with_its_name(cuda: Small, text: str) -> None:
    kernels.path(cuda.project, TINY).write_text(text)
    with pytest.raises(errors.BadInputError, match=r"gpus\.json") as caught:
        kernels.load(cuda.project, TINY)
    assert caught.value.next_step == f"vetted gpus {TINY} --record"


def test_a_few_kernels_for_one_gpu_are_not_support_for_it() -> None:
    """vllm 0.7.2 has an empty kernel as PTX for 5.2, which would run everywhere."""
    library = Library("vllm", "vllm/_C.abi3.so", {"sm_52": 1, "sm_80": 31, "sm_90": 31, "sm_90a": 15, "compute_52": 1})
    parts = gpus.architectures(Kernels({}, "12.4", (library,), {}))
    assert parts == {"vllm": ["sm_80", "sm_90"]}
    assert gpus.worst(gpus.verdicts(parts, (10, 0))) == "absent"


def test_a_library_that_is_not_where_it_was_is_no_support() -> None:
    library = Library("vllm", "vllm/_D.so", {"sm_80": 1})
    assert gpus.worst(gpus.verdicts(gpus.architectures(Kernels({}, "13.0", (library,), {})), (8, 0))) == "absent"


def test_certified_is_what_ran_on_such_a_gpu() -> None:
    (h100,) = [gpu for gpu in gpus.GPUS if "H200" in gpu.models]
    assert gpus.certified(h100, ["1x NVIDIA H200, driver 580.95.05 (image)"])
    assert not gpus.certified(h100, ["AMD EPYC, 2 cores (image)", "1x NVIDIA B200, driver 580.95.05 (lock)"])


def test_every_committed_cuda_lock_was_read(real: Project) -> None:
    for lock in (lock for name in stack.shipped(real) for lock in lockfile.load_all(real, name)):
        read = kernels.of_lock(real, lock)
        assert (read is not None) == (kernels.cuda(lock) is not None), lock.image
        if read:
            assert kernels.text(read) == kernels.path(real, lock.name, lock.platform).read_text()
            # For arm64, torch has its linear algebra in libtorch_cuda.so.
            lacking = {part.title for part in gpus.PARTS} - set(gpus.architectures(read))
            assert lacking == ({"linear algebra of torch"} if lock.platform is ARM64 else set()), lock.image


def test_the_kernels_of_an_extension_are_the_parents_and_its_own(
    cuda: Small, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VETTED_WHEELHOUSE", str(cuda.wheelhouse))
    command(cuda.root, "gpus", TINY, "--record")
    before = kernels.load(cuda.project, TINY)
    with zipfile.ZipFile(make_wheel(cuda.wheelhouse, "xformers", "1.0", {})[0], "a") as wheel:
        wheel.writestr("xformers/_C.so", VLLM)
    (cuda.root / "mine.txt").write_text("xformers\n")
    answer = command(cuda.root, "extend", TINY, "mine.txt", "--name", "mine")
    assert answer.code == 0, answer.err
    lock = lockfile.load(cuda.project, "mine")
    read = kernels.of_lock(cuda.project, lock)
    assert read and {library.distribution for library in read.libraries} == {"torch", "vllm", "xformers"}
    shutil.rmtree(cuda.project.stack_dir(TINY))  # it may have moved on: the layer of its description is as it was
    assert kernels.of_parent(read, lock.parent) == before
