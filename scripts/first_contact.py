"""The suite on a borrowed machine that has a GPU, its own Python and no network: what a short visit can bring back.

    python3 scripts/first_contact.py look --out OUT            # seconds: what the machine has
    python3 scripts/first_contact.py run --out OUT --wheels W  # minutes: the suite, with these wheels as well

`look` first: scripts/first_contact_wheels.py then collects the wheels that the machine lacks. `run` writes each event
as it comes, so that a visit that ends early loses nothing. Both need the standard library only. What comes back is a
report: the machine's packages are not a lock's, so it earns no certificate. `vetted bundle --have OUT` can earn one.
"""

from __future__ import annotations

import argparse
import contextlib
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
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("nvidia-smi", "gcc", "nvcc", "uv", "docker", "bwrap")
LEAST = 16 << 10  # bytes of a file that is worth leaving out of a transfer
PATIENCE_S = 30.0  # for a program that describes the machine


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("look", "run"):
        command = commands.add_parser(name)
        command.add_argument("--out", type=Path, required=True, help="the folder that comes back")
        if name == "run":
            command.add_argument("--wheels", type=Path, help="a folder of wheels that go before the machine's packages")
            command.add_argument("--probe", action="append", dest="probes", help="only these; may be repeated")
            command.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    look(options.out)
    if options.command == "run":
        return run(options.out, options.wheels, options.probes, options.device)
    write_files(options.out)
    return 0


# --- what the machine has ------------------------------------------------------------------------------------------


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
    print(f"{len(pins)} distributions, {machine['gpus']}", flush=True)


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
    path.write_text(json.dumps(data, indent=1) + "\n")


# --- the suite -----------------------------------------------------------------------------------------------------


def run(out: Path, wheels: Path | None, probes: list[str] | None, device: str) -> int:
    """Run the suite in this Python, and write its events to events.jsonl; 0 when no probe has failed."""
    site = out.resolve().with_name(f"{out.name}.site")
    if wheels is not None:
        unpack(wheels, site)
    command = [sys.executable, "-I", "-S", str(ROOT / "smoke" / "__main__.py"), "--python", sys.executable]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    failed = []
    with (
        (out / "events.jsonl").open("a") as events,
        (out / "suite.log").open("ab") as log,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as suite,
    ):
        assert suite.stdin is not None and suite.stdout is not None
        suite.stdin.write(json.dumps({"device": device, "probes": probes}) + "\n")
        suite.stdin.flush()  # and stays open: the suite ends when it is closed
        for line in suite.stdout:
            events.write(line)
            events.flush()
            event = json.loads(line)
            if event["event"] == "end":
                failed += [event["probe"]] if event["outcome"] not in ("passed", "not-run") else []
                reason = (event["reason"] or "").partition("\n")[0][:200]
                print(f"{event['probe']:<24} {event['outcome']:<8} {event['seconds']:7.1f} s  {reason}", flush=True)
    print(f"failed: {', '.join(failed) or 'none'}", flush=True)
    return 1 if failed or suite.returncode else 0


def unpack(wheels: Path, site: Path) -> None:
    """Unpack wheels into a folder of the import path: scripts and data, which the suite does not need, stay behind."""
    site.mkdir(exist_ok=True)
    for wheel in sorted(wheels.rglob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
