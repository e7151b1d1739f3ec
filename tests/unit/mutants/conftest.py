"""A distribution to make mutants of, a project whose suite looks at it, and lists of mutants."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from builder.certify import hostenv
from tests.conftest import ROOT, Small, make_wheel
from tests.mutants import mutant
from tests.mutants.mutant import Placed

SUMS = """\
SLOW = False


def add(a, b):
    return a + b


def twice(a):
    return add(a, a)
"""
LIBRARY = {"tiny_math/__init__.py": "", "tiny_math/sums.py": SUMS, "tiny_math/deep/sums.py": "FLAT = 1\n"}
PROBE = '''\
"""Does it add up?"""

from smoke.probe import Bound, Probe, Reading

PROBE = Probe(
    matters="nothing else does",
    bounds=(Bound("answer", "arithmetic", equals=4, headline=True),),
    links=("https://github.com/huggingface/trl",),
    needs=("tiny_math",),
    timeout_s=2,
)


def run(context):
    from tiny_math import sums

    while sums.SLOW:
        pass
    yield Reading("answer", sums.add(1, 3))
'''

ONE = {"id": "one", "package": "tiny-math", "file": "sums.py", "find": "a + b", "replace": "a - b", "why": "differs"}


def write_list(path: Path, *mutants: dict[str, str]) -> Path:
    """A list as TOML; what JSON calls a string is one in TOML, too."""
    lines = [
        line for mutant in mutants for line in ("[[mutant]]", *(f"{k} = {json.dumps(v)}" for k, v in mutant.items()))
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def load(tmp_path: Path, *mutants: dict[str, str]) -> list[mutant.Mutant]:
    return mutant.load(write_list(tmp_path / "list.toml", *mutants), "list.toml")


@pytest.fixture
def calculator(wheels: Small) -> Small:
    """A small project with the real suite's runner, two probes, and a distribution that one of them looks at."""
    _, sha256 = make_wheel(wheels.wheelhouse, "tiny-math", "1.0", LIBRARY)
    with wheels.file("requirements.txt").open("a") as requirements:
        requirements.write(f"tiny-math==1.0 --hash=sha256:{sha256}\n")
    smoke = wheels.project.smoke
    shutil.rmtree(smoke)
    shutil.copytree(ROOT / "smoke", smoke, ignore=shutil.ignore_patterns("__pycache__", "probes"))
    (smoke / "probes").mkdir()
    (smoke / "probes" / "blind.py").write_text(PROBE.replace("sums.add(1, 3)", "4").replace("sums.SLOW", "False"))
    (smoke / "probes" / "sums.py").write_text(PROBE)
    hostenv.prepare(wheels.project, wheels.lock, wheels.scratch(), lambda _: None)
    return wheels


def site_packages(small: Small) -> Path:
    return hostenv.path(small.project, small.lock) / small.lock.site_packages


def place(small: Small, tmp_path: Path, **change: str) -> Placed:
    (placed,) = mutant.place(
        load(tmp_path, {**ONE, **change}), site_packages(small), small.lock.versions, "list.toml"
    )  # fmt: skip
    return placed
