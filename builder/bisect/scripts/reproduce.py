# /// script
# requires-python = ">=3.11"
# dependencies = ["unidiff"]
# ///
"""Shows that the same question passes with good.txt and fails with bad.txt: uv run reproduce.py

reproduce.json, beside it, says what is asked, and how both sets are installed. It needs uv, that Python, and a package
index. Exit code 0: it shows. 1: it does not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def install(side: str, folder: Path, python: str, backend: str | None, patches: list[str]) -> Path:
    """Install a set into a new environment. `backend`: where uv finds its build of torch, if no folder has it."""
    environment = folder / side
    subprocess.run(["uv", "venv", "--quiet", "--no-project", "--python", python, environment], check=True)
    sync = ["uv", "pip", "sync", "--quiet", "--require-hashes", "--python", str(environment / "bin" / "python")]
    sync += ["--build-constraints", str(HERE / "build.txt"), str(HERE / f"{side}.txt")]
    first = subprocess.run(sync, capture_output=backend is not None)
    if first.returncode and backend is not None:
        subprocess.run([*sync, "--torch-backend", backend], check=True)
    elif first.returncode:
        sys.exit(f"installing the {side} set failed")
    if patches:
        patch(environment, folder / "patched", patches)
    return environment


def patch(environment: Path, output: Path, patches: list[str]) -> None:
    """Apply patches, in this order, to the installed distributions."""
    (site_packages,) = (environment / "lib").glob("python3.*/site-packages")
    paths = [HERE / "patches.py", site_packages, output, *(HERE / name for name in patches)]
    subprocess.run([sys.executable, *map(str, paths)], stdout=subprocess.DEVNULL, check=True)
    for path in output.rglob("*"):
        if path.is_file():
            # A rename, not a write: the installed file may be a link into uv's cache.
            installed = site_packages / path.relative_to(output)
            beside = installed.with_suffix(".patched")
            shutil.copyfile(path, beside)
            beside.replace(installed)
    remove(output)


def ask_probe(environment: Path, folder: Path, side: str, device: str, probe: str) -> str | None:
    """What a probe of the suite says; None when it passes."""
    pins = [line.split(" ")[0].split("==") for line in (HERE / f"{side}.txt").read_text().splitlines()]
    request = {"device": device, "probes": [probe], "distributions": dict(pins)}
    # Not through a pipe that is closed at once: the suite ends as soon as its caller is gone.
    with subprocess.Popen(
        [environment / "bin" / "python", "-m", "smoke"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(HERE), "TMPDIR": str(folder)},
        cwd=folder,
        text=True,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(json.dumps(request) + "\n")
        child.stdin.flush()
        events = [json.loads(line) for line in child.stdout if line.startswith("{")]
    end = next((event for event in events if event["event"] == "end"), None)
    if end is None:
        return "the suite reported nothing"
    return None if end["outcome"] == "passed" else f"{end['outcome']}: {end['reason']}"


def ask_command(environment: Path, command: list[str], time_limit_s: float) -> str | None:
    """How a command ends; None when it exits with status 0."""
    path = os.pathsep.join((str(environment / "bin"), os.environ["PATH"]))
    variables = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(environment)}
    try:
        status = subprocess.run(command, env=variables, timeout=time_limit_s).returncode
    except subprocess.TimeoutExpired:
        return f"still running after {time_limit_s:g} s"
    return None if status == 0 else f"status {status}"


def remove(folder: Path) -> None:
    """Remove a folder, however deep the folders in it are: Python itself cannot follow them."""
    subprocess.run(["rm", "-rf", "--", folder], check=False)


def main() -> int:
    question: dict[str, Any] = json.loads((HERE / "reproduce.json").read_text(encoding="utf-8"))
    print(question["title"], file=sys.stderr)
    folder = Path(tempfile.mkdtemp(prefix="reproduce-"))
    failures: dict[str, str | None] = {}
    try:
        for side in ("good", "bad"):
            environment = install(
                side, folder, question["python"], question["torch_backend"], question["patches"][side]
            )
            if question["probe"]:
                failure = ask_probe(environment, folder, side, question["device"], question["probe"])
            else:
                failure = ask_command(environment, question["command"], question["time_limit_s"])
            failures[side] = failure
            print(f"{side}: {failure or 'passed'}", flush=True)
            remove(environment)
    finally:
        remove(folder)
    return 0 if failures["good"] is None and failures["bad"] is not None else 1


if __name__ == "__main__":
    sys.exit(main())
