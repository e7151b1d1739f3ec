"""One extension by many packages: locked, built, weighed and certified. A part of `python -m benchmarks.extensions`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import imported
from builder.base import errors
from builder.image import oci, target
from builder.lock import archives, extension, lockfile
from builder.lock.lockfile import Lock
from builder.pages import weight

if TYPE_CHECKING:
    from benchmarks.extensions import Answer, Bench

NAME = "bench-together"
# Modules of packages with much Python: each is imported in the image with bytecode and without.
MODULES = ("nltk", "scipy.stats", "torchmetrics")


def measure(bench: Bench, packages: Sequence[str]) -> dict[str, Any]:
    """Lock, build and certify all of them at once. The parent is built before the clock starts.

    Raises VettedError when there is no such extension.
    """
    taken, without, locked = _locked(bench, packages)
    parent = _good(bench.vetted("build", bench.lock.name))
    load = os.getloadavg()[0]
    built = _good(bench.vetted("build", NAME))
    certified = bench.vetted("certify", NAME, "--engine", "docker")
    image = oci.read(Path(built.json["layout"]))
    lock = _lock(bench)
    return {
        "packages": len(taken), "distributions": len(lock.own.python), "without": without,
        "lock_s": round(locked.seconds, 1), "build_s": round(built.seconds, 1),
        "certify_s": round(certified.seconds, 1), "load": round(load, 1),
        "certified": certified.code == 0, "passed": _passed(certified),
        "layers_kept": built.json["layers"][:-1] == parent.json["layers"],
        "layer_bytes": image.layers[-1].size, "files_bytes": _files_bytes(bench, lock),
        "bytecode_bytes": weight.bytecode_bytes(image, image.layers[-1]),
        "imports_s": {module: _imports(bench, lock, module) for module in MODULES if certified.code == 0},
    }  # fmt: skip


def _imports(bench: Bench, lock: Lock, module: str) -> dict[str, float]:
    """Seconds of an import in the image, with bytecode and without."""
    program = Path(imported.__file__)
    argv = [
        "docker", "run", "--rm", "--network", "none", "--read-only", "--tmpfs", "/tmp:exec,mode=1777",
        "--volume", f"{program}:/{program.name}:ro", target.reference(bench.home, lock),
        "python", f"/{program.name}", ",".join(lock.own.python), module,
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise errors.from_tool(f"importing {module}", done.stderr)
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def _locked(bench: Bench, packages: Sequence[str]) -> tuple[list[str], list[str], Answer]:
    """An extension by as many of them as fit side by side: what each refusal names as old is left out."""
    taken, without = list(packages), list[str]()
    while True:
        answer = bench.extend(taken, NAME)
        if answer.code == 0:
            return taken, without, answer
        named = re.findall(r"^(\S+) \S+, and not ", answer.json.get("error", {}).get("what", ""), re.MULTILINE)
        out = [each for each in taken if lockfile.normalise(each.partition("[")[0]) in named]
        if not out:
            _good(answer)
        taken, without = [each for each in taken if each not in out], without + out


def _lock(bench: Bench) -> Lock:
    """The lock of the extension, which lies in the folder of the benchmark."""
    before = os.environ.get("VETTED_STACKS")
    os.environ["VETTED_STACKS"] = str(bench.stacks)
    try:
        return lockfile.load(bench.home, NAME)
    finally:
        del os.environ["VETTED_STACKS"]
        if before is not None:
            os.environ["VETTED_STACKS"] = before


def _files_bytes(bench: Bench, lock: Lock) -> int:
    """The bytes of the wheels and source archives that the extension adds."""
    own = [entry for entry in lock.python if entry.name in lock.own.python]
    plain = extension.plain(lock.stack)
    files = archives.fetch(bench.home, plain, own, bench.scratch, lambda _: None)
    return sum(path.stat().st_size for path in files.values())


def _passed(answer: Answer) -> int:
    return len(answer.json["statement"]["predicate"]["passedTests"]) if "statement" in answer.json else 0


def _good(answer: Answer) -> Answer:
    if answer.code != 0:
        error = answer.json.get("error", {})
        raise errors.VettedError(error.get("what", answer.words), next_step=error.get("next", ""))
    return answer
