"""Machines that do not exist, with these GPUs, and what each part of Vetted says there before anything runs on one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from builder.base import errors, machine
from builder.base.project import Project
from builder.certify import choice
from builder.image import context
from builder.intent import stack
from builder.lock.lockfile import Lock
from tests.conftest import ROOT
from tests.gpu import stub

MIG = "MIG-00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Fake:
    """A machine. `nodes`: its device files, by default one a GPU and CUDA's. `visible`: CUDA_VISIBLE_DEVICES.

    `probes`: those that its suite is asked for, where the whole takes too long; empty for all.
    """

    title: str
    gpus: tuple[str, ...] = (stub.H200,)
    driver: str = stub.DRIVER  # empty where none is installed
    nodes: tuple[str, ...] | None = None
    visible: str | None = None
    probes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[dict[str, str]]:
        """Each GPU by the names of nvidia-smi's fields."""
        fields = [gpu.split("|") for gpu in self.gpus]
        return [
            {
                "name": name, "driver_version": self.driver, "compute_cap": f"{major}.{minor}",
                "memory.total": f"{memory} MiB",
                "uuid": f"GPU-0000000{number}-0000-0000-0000-000000000000",
            }
            for number, (name, major, minor, memory) in enumerate(fields)
        ]  # fmt: skip

    def machine(self, folder: Path, libraries: Path) -> stub.Machine:
        """It, for programs to be started on. Only one with a driver."""
        more = {} if self.visible is None else {"CUDA_VISIBLE_DEVICES": self.visible}
        return stub.machine(folder, libraries, self.gpus, self.nodes, self.driver, more)


# Where an import starts CUDA, each probe has a process of its own: all would take half an hour. And what stands between
# a probe and its GPU is the same for all.
FEW = ("gemm-sweep", "imports", "nf4-parity")
FAKES = (
    Fake("no GPU", gpus=(), driver="", nodes=()),
    Fake("H200"),
    Fake("2 × H200", gpus=(stub.H200,) * 2),
    Fake("V100", gpus=(stub.V100,)),
    Fake("T4", gpus=(stub.T4,), probes=FEW),
    Fake("H200, an old driver", driver="550.54.15", probes=FEW),
    Fake("H200, a part of it (MIG)", visible=MIG, probes=FEW),
    Fake("H200 in WSL", nodes=("dxg",), probes=FEW),
    Fake("H200 without device files", nodes=(), probes=FEW),
)


@contextmanager
def on(fake: Fake, folder: Path) -> Iterator[None]:
    """Let this process find the machine's nvidia-smi, if it has one, in a new folder."""
    folder.mkdir()
    path = [str(folder)]
    if fake.driver:
        _nvidia_smi(fake, folder / "nvidia-smi")
        path += ["/usr/local/bin", "/usr/bin", "/bin"]
    visible = {} if fake.visible is None else {"CUDA_VISIBLE_DEVICES": fake.visible}
    others = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "NVIDIA_"))}
    with mock.patch.dict(os.environ, {**others, "PATH": ":".join(path), **visible}, clear=True):
        yield


def _nvidia_smi(fake: Fake, program: Path) -> None:
    """It answers `--query-gpu=FIELDS`."""
    program.write_text(
        f"#!{sys.executable}\nimport sys\nrows = {fake.rows!r}\n"
        "(fields,) = (word.partition('=')[2].split(',') for word in sys.argv if word.startswith('--query-gpu='))\n"
        "for row in rows:\n    print(', '.join(row[field] for field in fields))\n"
    )
    program.chmod(0o755)


# --- what is said there --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """What is said before the suite runs. `chosen`: the stack that `vetted use` takes; None where it refuses."""

    chosen: str | None
    reason: str
    compose: Mapping[str, Any]  # what a container is given; empty without a GPU
    preflight: Sequence[tuple[str, str]]  # level and first line of what is said in the image for GPUs
    hardware: str  # as a certificate would name it, or why there is none


def answers(project: Project, lock: Lock, fake: Fake, libraries: Path, folder: Path) -> Said:
    """Ask `vetted use`, compose, `vetted preflight` in the image of this lock, and `vetted certify`."""
    folder.mkdir(parents=True)
    with on(fake, folder / "bin"):
        try:
            taken = choice.choose(project)
            chosen, reason = taken.name, taken.reason
        except errors.BadInputError as error:
            chosen, reason = None, error.what
        try:
            hardware = machine.hardware("cuda").hardware_class
        except errors.MissingToolError as error:
            hardware = error.what
    devices = container(fake, stack.load(project, chosen).device) if chosen else {}
    return Said(chosen, reason, devices, preflight(project, lock, fake, libraries, folder), hardware)


def container(fake: Fake, device: str) -> dict[str, Any]:
    """What compose gives the service `train`: the driver's parts, and the GPUs that CUDA shows. Needs no daemon."""
    names = ["compose.yaml", *(["compose.gpu.yaml"] if device == "cuda" else [])]
    files = ["--env-file=/dev/null", *(f"--file={ROOT / name}" for name in names)]
    chosen = {"VETTED_IMAGE": "image", **({} if fake.visible is None else {"VETTED_GPUS": fake.visible})}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VETTED_", "COMPOSE_"))}
    done = subprocess.run(
        ["docker", "compose", *files, "config", "--format", "json"], cwd=ROOT, env={**environment, **chosen},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    train = json.loads(done.stdout)["services"]["train"]
    asked_for = train.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
    if not asked_for:
        return {}
    (devices,) = asked_for
    visible = train["environment"]["CUDA_VISIBLE_DEVICES"]
    return {"driver": sorted(driver_capabilities(devices["capabilities"])), "visible": visible}


def driver_capabilities(requested: Sequence[str]) -> set[str]:
    """What a container gets of the driver, by Docker's rule (moby, daemon/nvidia_linux.go).

    Requested capabilities that are the driver's own become NVIDIA_DRIVER_CAPABILITIES; where none is, the container
    toolkit's default holds. libcuda.so.1 comes with compute, libnvidia-ml.so.1 with utility.
    """
    own = {"compute", "compat32", "graphics", "utility", "video", "display"} & set(requested)
    return own or {"compute", "utility"}


LOOK = """
import json, os, pathlib, sys
from runtime import preflight
checks = preflight.look(pathlib.Path(sys.argv[1]), {"CUDA_VISIBLE_DEVICES": sys.argv[2]})
print(json.dumps([[check.level, str(check).splitlines()[0]] for check in checks[1:]]))
"""


def preflight(project: Project, lock: Lock, fake: Fake, libraries: Path, folder: Path) -> list[tuple[str, str]]:
    """What preflight says in the image of a lock, in a container of compose; not of certificates."""
    return [(level, line) for level, line in inside(project, lock, fake, libraries, folder)(LOOK)]


def inside(project: Project, lock: Lock, fake: Fake, libraries: Path, folder: Path) -> Callable[[str], Any]:
    """What runs a program in a container of compose, in the image of a lock, and reads the JSON that it prints.

    Its arguments are the root of the container's files and CUDA_VISIBLE_DEVICES. `folder` is a new one.
    """
    devices = container(fake, "cuda")
    root, driver = folder / "root", folder / "driver"
    _files(project, lock, fake, root, compute="compute" in devices["driver"])
    if fake.driver and "utility" in devices["driver"]:
        fake.machine(driver, libraries)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver)}

    def run(program: str) -> Any:
        argv = [sys.executable, "-c", program, str(root), devices["visible"]]
        done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return run


def _files(project: Project, lock: Lock, fake: Fake, root: Path, *, compute: bool) -> None:
    """The files of a container that preflight looks at."""
    files = {"etc/vetted/stack.json": json.dumps(context.description(project, lock))}
    wsl = fake.nodes == ("dxg",)
    if fake.driver and not wsl:
        version = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {fake.driver}  Wed Jan  1 00:00:00 UTC 2026\n"
        files["proc/driver/nvidia/version"] = version
        for number, row in enumerate(fake.rows):
            fields = f"Model: \t\t {row['name']}\nGPU UUID: \t {row['uuid']}\nDevice Minor: \t {number}\n"
            files[f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information"] = fields
    if fake.driver and compute:
        files[f"usr/lib/{'wsl/lib' if wsl else 'x86_64-linux-gnu'}/libcuda.so.1"] = ""
    nodes = [f"nvidia{number}" for number in range(len(fake.gpus))] if fake.nodes is None else fake.nodes
    for name, text in {**files, **{f"dev/{node}": "" for node in nodes}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "dev" / "shm").mkdir(parents=True)
    (root / "runs").mkdir()
