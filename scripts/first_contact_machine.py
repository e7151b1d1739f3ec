"""What a borrowed machine has: its packages and their files, its hardware and programs. Standard library only."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from smoke.run import gpus

PROGRAMS = ("nvidia-smi", "gcc", "nvcc", "uv", "docker", "bwrap")
LEAST = 16 << 10  # bytes of a file that is worth leaving out of a transfer
PATIENCE_S = 30.0  # for a program that describes the machine


def look(out: Path) -> None:
    """Write freeze.txt, records.json (the hash of each distribution's RECORD) and machine.json."""
    pins: dict[str, str] = {}
    records: dict[str, str | None] = {}
    for distribution in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", str(distribution.metadata["Name"])).lower()
        record = distribution.read_text("RECORD")
        pins.setdefault(name, distribution.version)
        records.setdefault(name, hashlib.sha256(record.encode()).hexdigest() if record else None)
    (out / "freeze.txt").write_text("".join(f"{name}=={version}\n" for name, version in sorted(pins.items())))
    machine = {
        "python": sys.version,
        "executable": sys.executable,
        "headers": Path(sysconfig.get_path("include"), "Python.h").is_file(),
        "platform": platform.platform(),
        "libc": platform.libc_ver(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "free_mib": shutil.disk_usage(out).free >> 20,
        "user": os.geteuid(),
        "mounts": _output("unshare", "--mount", "--net", "mount", "-t", "tmpfs", "none", "/mnt") == "",
        "devices": sorted(path.name for path in Path("/dev").glob("nvidia*")),
        "libcuda": [str(path) for folder in ("/usr/lib", "/usr/local") for path in Path(folder).rglob("libcuda.so*")],
        "programs": {name: shutil.which(name) for name in PROGRAMS},
        "variables": {name: value for name, value in os.environ.items() if name.startswith(("CUDA", "NVIDIA", "LD_"))},
        "gpus": _output("nvidia-smi", "--query-gpu=name,driver_version,compute_cap,memory.total,uuid", "--format=csv"),
        "topology": _output("nvidia-smi", "topo", "-m"),
    }
    write(out / "machine.json", machine)
    write(out / "records.json", dict(sorted(records.items())))
    print(f"{len(pins)} distributions, {no_gpu() or machine['gpus']}", flush=True)


def no_gpu() -> str:
    """Why no GPU is visible here, in words; empty where one is."""
    if gpus.visible():
        return ""
    if any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists():
        return f"no GPU is visible: CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES')!r}"
    return "no GPU is visible: there is no /dev/nvidia0, nor another one"


def package_folders() -> list[str]:
    """The folders of sys.path that distributions are installed in.

    PYTHONPATH often names a project's root: what is below it comes and goes, a container's files for instance.
    """
    return [folder for folder in sys.path[1:] if any(Path(folder).glob("*.dist-info"))]


def write_files(out: Path) -> None:
    """Write files.json: the sha256 of each file of this Python's packages, and its size, for `vetted bundle --have`."""
    walks = (os.walk(folder) for folder in package_folders())
    paths = sorted({Path(parent, name) for walk in walks for parent, _, names in walk for name in names})
    with ThreadPoolExecutor() as pool:
        sizes = dict(filter(None, pool.map(_large, paths)))
    write(out / "files.json", dict(sorted(sizes.items())))
    print(f"{len(sizes)} files of {LEAST} bytes or more, {sum(sizes.values()) / 1e9:.1f} GB", flush=True)


def _large(path: Path) -> tuple[str, int] | None:
    """The digest and the size of a large file; None for a small one, and for one that is gone or closed to us."""
    try:
        size = path.stat().st_size if path.is_file() else 0
        return (_sha256(path), size) if size >= LEAST else None
    except OSError:
        return None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _output(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout or done.stderr


def write(path: Path, data: Any) -> None:
    """Write JSON that nobody ever finds half written."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(data, indent=1) + "\n")
    partial.replace(path)
