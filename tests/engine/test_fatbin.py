"""The reader of fatbins beside NVIDIA's own, on libraries of the CUDA stack; and NVML beside a fake one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from builder.base import machine, project
from builder.lock import archives, fatbin, lockfile
from tests.conftest import ROOT
from tests.gpu import stub

STACK = "trl1.16-torch2.11-cu130"
LISTED = re.compile(r"\.(sm_[0-9]+a?)\.(?:cubin|ptx)$", re.MULTILINE)


@pytest.fixture(scope="module")
def cuobjdump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NVIDIA's tool, from its wheel."""
    folder = tmp_path_factory.mktemp("cuobjdump")
    argv = [machine.uv_binary(), "pip", "install", "--quiet", "--target", str(folder), "nvidia-cuda-cuobjdump"]
    subprocess.run(argv, check=True)
    (program,) = [path for path in folder.rglob("cuobjdump") if path.is_file()]
    program.chmod(0o755)
    return program


@pytest.fixture(scope="module", params=["bitsandbytes", "nvidia-nccl-cu13", "torchvision", "nvidia-cufft"])
def unpacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Counter[str]]:
    """The libraries of a locked wheel, and what our reader says of each."""
    home = project.Project(ROOT)
    lock = lockfile.load(home, STACK)
    (entry,) = [entry for entry in lock.python if entry.name == request.param]
    folder = tmp_path_factory.mktemp("wheel")
    with home.holding(STACK) as scratch:
        (wheel,) = archives.fetch(home, lock.stack, [entry], scratch, lambda _: None).values()
        read = fatbin.of_wheel(wheel, scratch)
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(folder)], check=True)
    assert read
    return {folder / name: images for name, images in read.items()}


def test_it_sees_what_nvidias_tool_sees(unpacked: dict[Path, Counter[str]], cuobjdump: Path) -> None:
    # The tool of CUDA 13 does not read machine code for the GPUs that CUDA 13 left behind.
    recent = {path: images for path, images in unpacked.items() if not {"sm_60", "sm_70"} & set(images)}
    assert recent
    for path, images in recent.items():
        for option, kind in (("--list-elf", "sm_"), ("--list-ptx", "compute_")):
            done = subprocess.run([cuobjdump, option, path], capture_output=True, text=True, check=False)
            theirs = Counter(name.replace("sm_", kind) for name in LISTED.findall(done.stdout))
            ours: Counter[str] = Counter()
            for name, count in images.items():
                if name.startswith(kind):
                    ours[name.removesuffix("f")] += count  # which their list leaves out
            assert ours == theirs, f"{path.name} {option}"


def test_the_compute_capability_is_nvmls(tmp_path: Path) -> None:
    folder = stub.libraries(tmp_path / "driver", tmp_path)
    code = "from runtime import capability; print(capability.capabilities())"
    with_two = stub.machine(tmp_path / "machine", folder, gpus=(stub.V100, stub.H200))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **with_two.environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "{'Tesla V100-SXM2-32GB': (7, 0), 'NVIDIA H200': (9, 0)}\n"
