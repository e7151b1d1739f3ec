"""A reproducer: a folder that shows the fault on any machine with uv, and with nothing of this project installed.

It holds the two locks that differ in the culprits alone, the suite where one of its probes is asked, and a script.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from builder.base import sources
from builder.base.project import Project, write
from builder.bisect.packages import Found, Question
from builder.image import patches
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from builder.lock.solver import torch_backend

SCRIPT = "reproduce.py"

TEMPLATE = '''\
# /// script
# requires-python = ">=3.11"
# dependencies = {needs}
# ///
"""{title}

    uv run {script}

needs uv, Python {python} and a package index. Exit 0: it shows.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATCHES = {patches}  # of each set, in the order in which they are applied
PROBE = {probe!r}
COMMAND = {command!r}
BACKEND = {backend!r}  # where uv finds this build of torch, if not in a folder that UV_FIND_LINKS names
TIME_LIMIT_S = {limit!r}


def install(side, folder):
    environment = folder / side
    subprocess.run(["uv", "venv", "--quiet", "--no-project", "--python", "{python}", str(environment)], check=True)
    sync = ["uv", "pip", "sync", "--quiet", "--require-hashes", "--python", str(environment / "bin" / "python")]
    sync += ["--build-constraints", str(HERE / "build.txt"), str(HERE / (side + ".txt"))]
    known = subprocess.run(sync, capture_output=BACKEND is not None)
    if known.returncode and BACKEND is not None:
        subprocess.run([*sync, "--torch-backend", BACKEND], check=True)
    elif known.returncode:
        sys.exit("installing the " + side + " set failed")
    if PATCHES[side]:
        import patches

        (site,) = (environment / "lib").glob("python3.*/site-packages")
        for file in patches.apply(site, folder / "patched", [HERE / name for name in PATCHES[side]]):
            # A rename, not a write: the installed file may be a link into uv's cache.
            beside = (site / file).with_suffix(".patched")
            shutil.copyfile(folder / "patched" / file, beside)
            beside.replace(site / file)
        shutil.rmtree(folder / "patched")
    return environment


def ask(environment, folder, side):
    """What came of it, in words; None when it passed."""
    pins = [line.split(" ")[0].split("==") for line in (HERE / (side + ".txt")).read_text().splitlines()]
    if PROBE:
        request = {{"device": {device!r}, "probes": [PROBE], "distributions": dict(pins)}}
        variables = {{**os.environ, "PYTHONPATH": str(HERE), "TMPDIR": str(folder)}}
        # Not through a pipe that is closed at once: the suite ends as soon as its caller is gone.
        child = subprocess.Popen(
            [str(environment / "bin" / "python"), "-m", "smoke"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables, cwd=folder, text=True,
        )
        child.stdin.write(json.dumps(request) + "\\n")
        child.stdin.flush()
        events = [json.loads(line) for line in child.stdout if line.startswith("{{")]
        ends = [event for event in events if event["event"] == "end"]
        if not ends:
            return "the suite said nothing"
        return None if ends[0]["outcome"] == "passed" else ends[0]["outcome"] + ": " + str(ends[0]["reason"])
    path = os.pathsep.join((str(environment / "bin"), os.environ["PATH"]))
    try:
        status = subprocess.run(
            COMMAND, env={{**os.environ, "PATH": path, "VIRTUAL_ENV": str(environment)}}, timeout=TIME_LIMIT_S
        ).returncode
    except subprocess.TimeoutExpired:
        return "still running after " + str(TIME_LIMIT_S) + " s"
    return None if status == 0 else "status " + str(status)


folder = Path(tempfile.mkdtemp(prefix="reproduce-"))
try:
    said = {{}}
    for side in ("good", "bad"):
        said[side] = ask(install(side, folder), folder, side)
        print(side + ": " + (said[side] or "passed"), flush=True)
        shutil.rmtree(folder / side)
finally:
    shutil.rmtree(folder, ignore_errors=True)
sys.exit(0 if said["good"] is None and said["bad"] is not None else 1)
'''


def make(project: Project, found: Found, question: Question, target: Path, scratch: Path) -> Path:
    """Write the reproducer's folder anew; returns its script."""
    made = scratch / "reproducer"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    files = {f"{side}.txt": _pins(lock) for side, lock in _sides(found).items()}
    build = {entry.name: entry for lock in (found.good, found.bad) for entry in lock.build}
    files["build.txt"] = lockfile.format_python(build[name] for name in sorted(build))
    files[SCRIPT] = _script(found, question)
    for name, text in files.items():
        write(made / name, text, scratch)
    for path in (*found.good.patches, *found.bad.patches):
        shutil.copyfile(path, made / _name(path))
        shutil.copyfile(patches.__file__, made / "patches.py")
    if question.probe:
        sources.copy(project.smoke, made)
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    made.rename(target)
    return target / SCRIPT


def _sides(found: Found) -> dict[str, Lock]:
    return {"good": found.good, "bad": found.bad}


def _name(patch: Path) -> str:
    """images/patches/vllm/0.7.2/0001-x.patch -> vllm-0.7.2-0001-x.patch"""
    return "-".join(patch.parts[-3:])


def _pins(lock: Lock) -> str:
    return lockfile.format_python(lock.python)


def _script(found: Found, question: Question) -> str:
    return TEMPLATE.format(
        title=f"{question.name}: passes with good.txt, fails with bad.txt. What differs: {words(found)}.",
        script=SCRIPT,
        python=found.good.stack.python,
        needs='["unidiff"]' if found.good.patches or found.bad.patches else "[]",
        patches={side: [_name(path) for path in lock.patches] for side, lock in _sides(found).items()},
        probe=question.probe,
        command=list(question.command),
        backend=torch_backend(found.bad.stack),
        limit=question.time_limit_s,
        device=found.bad.stack.device,
    )


def words(found: Found) -> str:
    """The culprits in one line, and what came along."""
    return ", ".join([*map(str, found.culprits), *(f"{change} (came along)" for change in found.along)])
