"""This machine: its hardware, and how it is configured to reach packages. None of it is part of a lock.

Wheels come from a wheelhouse (VETTED_WHEELHOUSE, else a folder in pip's PIP_FIND_LINKS), then from the index that uv is
configured for, through a proxy (HTTPS_PROXY) and with a CA bundle (SSL_CERT_FILE) where they are set.
"""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import uv

from builder.base import errors, process


def uv_binary() -> str:
    """The uv of this tool's own environment, pinned in its requirements."""
    return os.fsdecode(uv.find_uv_bin())


def wheelhouse() -> Path | None:
    """A folder of wheels that is searched before the index."""
    # VETTED_WHEELHOUSE is one folder, and may contain a space; pip's variable is a list.
    for entry in (os.environ.get("VETTED_WHEELHOUSE", ""), *os.environ.get("PIP_FIND_LINKS", "").split()):
        folder = Path(entry.removeprefix("file://"))
        if entry and folder.is_dir():
            return folder.absolute()
    return None


def in_wheelhouse(name: str, version: str) -> bool:
    """Does the wheelhouse have a wheel of exactly this version?"""
    folder = wheelhouse()
    return folder is not None and any(folder.glob(f"{name}-{version}-*.whl"))


def index() -> str | None:
    """The URL of the package index that this machine is configured for; None for uv's default."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if value := os.environ.get(name):
            return value
    return None


def ca_bundle() -> Path | None:
    """The certificate authorities that this machine is configured to trust, where they are its own."""
    value = os.environ.get("SSL_CERT_FILE", "")
    return Path(value) if value and Path(value).is_file() else None


def uv_offline() -> dict[str, str]:
    """uv's configuration where a folder has everything that it needs: nothing of this machine's."""
    return {
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        "NO_COLOR": "1",
        "VIRTUAL_ENV": "",
        "UV_NO_CONFIG": "1",
    }


def uv_environment(torch: str = "") -> dict[str, str]:
    """uv's configuration on this machine, for a stack with this version of torch ("" where the stack pins none).

    A wheelhouse with another build of the same version is left out: for 2.13.0, uv would take 2.13.0+cpu.
    """
    env = {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1", "VIRTUAL_ENV": ""}
    if (folder := wheelhouse()) and ("+" in torch or not any(folder.glob(f"torch-{torch}+*.whl"))):
        env["UV_FIND_LINKS"] = str(folder)
    if url := index():
        env["UV_DEFAULT_INDEX"] = url
    return env


@dataclass(frozen=True)
class Hardware:
    """What a certificate says about the machine that earned it."""

    name: str
    cores: int
    gpus: tuple[str, ...] = ()
    driver: str | None = None

    @property
    def hardware_class(self) -> str:
        """Machines of one class share certificates: the same CPU model, or the same GPUs and driver."""
        if self.gpus:
            models = " + ".join(f"{number}x {model}" for model, number in Counter(self.gpus).items())
            return f"{models}, driver {self.driver}"
        return f"{self.name}, {self.cores} cores"


def hardware(device: str) -> Hardware:
    """The CPU and, for `cuda`, the visible GPUs and their driver. Raises MissingToolError if nvidia-smi lists none."""
    info = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    name = match[1].strip() if match else platform.machine()
    cores = len(os.sched_getaffinity(0))
    if device != "cuda":
        return Hardware(name, cores)
    rows = _require_gpus()
    return Hardware(name, cores, tuple(row[0] for row in rows), rows[0][1])


@dataclass(frozen=True)
class Gpu:
    """A visible GPU: its model, driver, compute capability, such as (9, 0), and memory in MiB; 0 if it is not known."""

    name: str
    driver: str
    capability: tuple[int, int]
    memory_mib: int = 0


def gpus() -> list[Gpu]:
    """The visible GPUs; empty where nvidia-smi is missing, fails or lists none."""
    try:
        rows = _query("name", "driver_version", "compute_cap", "memory.total")
    except errors.VettedError:
        return []
    listed = []
    for row in rows:
        match = re.fullmatch(r"(\d+)\.(\d+)", row[2]) if len(row) == 5 else None
        if match is None:
            return []
        memory = re.match(r"\d+", row[3])  # "143771 MiB"; "[N/A]" where CPU and GPU share it
        listed.append(Gpu(row[0], row[1], (int(match[1]), int(match[2])), int(memory[0]) if memory else 0))
    return listed


def _require_gpus() -> list[list[str]]:
    """Name, driver and UUID of each visible GPU. Not the compute capability, which old drivers do not know."""
    try:
        rows = _query("name", "driver_version")
    except errors.MissingToolError as error:
        raise errors.MissingToolError(
            "no GPU to certify on: nvidia-smi is not installed",
            cause="the machine has no NVIDIA GPU, or its driver is not installed",
            next_step="run this on a host with an NVIDIA GPU and driver",
        ) from error
    if not rows:
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
        raise errors.MissingToolError(
            "no GPU to certify on: nvidia-smi lists none that is visible",
            cause="" if chosen is None else f"CUDA_VISIBLE_DEVICES is {chosen!r}",
            next_step="run this on a host with an NVIDIA GPU and driver",
        )
    return rows


def _query(*fields: str) -> list[list[str]]:
    """These fields of each visible GPU, and its UUID. Raises MissingToolError without nvidia-smi."""
    argv = ["nvidia-smi", f"--query-gpu={','.join(fields)},uuid", "--format=csv,noheader"]
    output = process.check("listing the GPUs", argv).stdout
    return _visible([[cell.strip() for cell in line.split(",")] for line in output.splitlines() if line.strip()])


def _visible(rows: list[list[str]]) -> list[list[str]]:
    """The GPUs that CUDA_VISIBLE_DEVICES selects, by number or UUID, up to the first entry that matches none.

    `rows`: some fields of each, the last one its UUID. nvidia-smi lists all GPUs, whatever the variable says.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return rows
    visible: list[list[str]] = []
    for entry in map(str.strip, chosen.split(",")):
        if entry.isdecimal():
            matches = rows[int(entry) : int(entry) + 1]
        elif entry.startswith("MIG-"):  # a part of a GPU, which nvidia-smi lists with its GPU
            matches = rows[:1] if len(rows) == 1 else []
        else:
            matches = [row for row in rows if entry and row[-1].startswith(entry)]
        if len(matches) != 1:
            break
        visible += matches
    return visible
