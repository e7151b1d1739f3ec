"""Attacks by somebody who did not write what they attack: on the judgement and on what a clone keeps."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.base import seal, sources
from builder.base.machine import Hardware
from builder.base.project import Project
from builder.certify import catalogue, hostenv, judgement
from builder.intent import stack
from builder.lock import archives, lockfile
from builder.lock.lockfile import Entry
from builder.publish import attached
from runtime import preflight
from tests.attacks.test_certificates import DAY, accepted, earned
from tests.attacks.test_certificates import genuine as genuine
from tests.attacks.test_certificates import terms as terms
from tests.conftest import ROOT

Document = dict[str, Any]
Deep = Callable[[Path], None]


# --- certificates --------------------------------------------------------------------------------------------------


def test_a_number_that_no_float_can_hold(genuine: Document, terms: judgement.Terms) -> None:
    """JSON has integers of any size: the judgement once ended in a traceback."""
    genuine = json.loads(json.dumps(genuine))
    genuine["predicate"]["probes"][0]["measurements"][0]["value"] = 10**400
    assert not accepted(genuine, terms)


def test_a_bound_is_written_as_true(genuine: Document, terms: judgement.Terms) -> None:
    """In Python, true equals 1 and false equals 0."""
    tried = 0
    for number, probe in enumerate(genuine["predicate"]["probes"]):
        for place, measured in enumerate(probe["measurements"]):
            for kind, limit in (measured.get("bound") or {}).items():
                if limit in (0, 1):
                    document = json.loads(json.dumps(genuine))
                    document["predicate"]["probes"][number]["measurements"][place]["bound"] = {kind: bool(limit)}
                    tried += 1
                    assert not accepted(document, terms), (probe["name"], measured["name"])
    assert tried


def test_a_machine_of_a_billion_cores(genuine: Document, terms: judgement.Terms) -> None:
    """The hardware class contains the number, and is consistent for any number of digits."""
    document = json.loads(json.dumps(genuine))
    machine = Hardware("Some CPU", 10**999)
    document["predicate"]["configuration"][3]["annotations"] |= {"class": machine.hardware_class, "cores": 10**999}
    assert not accepted(document, terms)


def test_one_strong_gpu_speaks_for_the_weak_ones() -> None:
    """A machine with two models was once "2x NVIDIA H200", and the judgement accepted it."""
    project = Project(ROOT)
    lock = next(
        lock for lock in (lockfile.load(project, name) for name in stack.names(project)) if lock.stack.device == "cuda"
    )
    terms = dataclasses.replace(judgement.terms(project, lock), day=DAY)
    mixed = Hardware("x", 2, ("NVIDIA H200", "Tesla T4"), "580.1")
    assert mixed.hardware_class == "1x NVIDIA H200 + 1x Tesla T4, driver 580.1"
    document = json.loads(earned(terms).to_json())
    document["predicate"]["configuration"][3]["annotations"] = {
        "class": "2x NVIDIA H200, driver 580.1", "cpu": "x", "cores": 2, "gpus": list(mixed.gpus), "driver": "580.1",
    }  # fmt: skip
    statement = type(earned(terms)).model_validate(document)
    assert any("contradicts itself" in doubt for doubt in judgement.doubts(statement, terms))


@pytest.mark.parametrize("where", ["textwrap.py", f"smoke/__pycache__/probe.{sys.implementation.cache_tag}.pyc"])
def test_what_lies_beside_the_suite_changes_the_catalogue(tmp_path: Path, where: str) -> None:
    """They were imported instead of the suite's modules when the bounds were read, under an unchanged digest."""
    sources.copy(ROOT / "smoke", tmp_path)
    expected, digest = catalogue.read(ROOT / "smoke"), sources.digest(tmp_path / "smoke")
    planted = tmp_path / where
    planted.parent.mkdir(exist_ok=True)
    if planted.suffix == ".py":
        planted.write_text("raise SystemExit('a stranger is here')\n")
    else:
        planted.write_bytes(_bytecode("raise SystemExit('a stranger is here')\n"))
    # The attack is a real one: where the file lies, Python imports it.
    argv = [sys.executable, "-I", "-S", "-B", str(tmp_path / "smoke" / "__main__.py"), "--list"]
    listing = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "a stranger is here" in listing.stderr
    assert sources.digest(tmp_path / "smoke") == digest
    assert catalogue.read(tmp_path / "smoke") == expected


def _bytecode(source: str) -> bytes:
    """As Python caches it, with a hash that is never checked."""
    import importlib.util
    import marshal

    flags = (0b01).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + flags + bytes(8) + marshal.dumps(compile(source, "planted.py", "exec"))


@pytest.fixture
def deep() -> Iterator[Deep]:
    """Makes a folder with others, one in the other; what is left of them would end pytest's own cleaning."""
    folders: list[Path] = []

    def make(folder: Path, levels: int = 1200) -> None:
        folders.append(folder)
        folder.mkdir()
        here = os.open(folder, os.O_RDONLY)
        for _ in range(levels):
            os.mkdir("d", dir_fd=here)
            inner = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
        os.close(here)

    yield make
    subprocess.run(["rm", "-rf", "--", *folders], check=True)


# --- what a clone keeps, and what an image says ---------------------------------------------------------------------


def test_a_killed_run_leaves_folders_deeper_than_python_can_follow(tmp_path: Path, deep: Deep) -> None:
    """On a host the stack writes below the scratch folder: no command worked on that stack afterwards."""
    project = Project(tmp_path)
    project.scratch("tiny").parent.mkdir(parents=True)
    deep(project.scratch("tiny"))
    with project.holding("tiny") as scratch:
        assert list(scratch.iterdir()) == []


def test_a_wheel_brings_folders_deeper_than_python_can_follow(tmp_path: Path, deep: Deep) -> None:
    """The environment could be neither sealed nor removed."""
    environment = tmp_path / "environment"
    deep(environment)
    before = seal.tree(environment)
    (environment / "d" / "d" / "file").touch()
    assert seal.tree(environment) != before
    hostenv.remove(environment)
    assert not environment.exists()


def test_a_kept_wheel_has_the_name_of_another(tmp_path: Path) -> None:
    """Its hash is the locked one; it once overwrote the other wheel through a hard link."""
    project, contents = Project(tmp_path), {"one": b"the wheel of one", "two": b"the wheel of two"}
    entries = [Entry(name, "1.0", hashlib.sha256(content).hexdigest()) for name, content in contents.items()]
    for entry in entries:
        path = tmp_path / ".vetted" / "wheels" / entry.sha256 / "one-1.0-py3-none-any.whl"
        path.parent.mkdir(parents=True)
        path.write_bytes(contents[entry.name])
    assert [path is not None for path in (archives.kept(project, entry) for entry in entries)] == [True, False]


def test_the_scratch_folder_is_a_link(tmp_path: Path) -> None:
    """A foreign state folder contains it: the link's target stays, and nothing ends in a traceback."""
    project, theirs = Project(tmp_path / "clone"), tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "file").touch()
    project.scratch("tiny").parent.mkdir(parents=True)
    project.scratch("tiny").symlink_to(theirs)
    with project.holding("tiny") as scratch:
        assert not scratch.is_symlink()
    assert (theirs / "file").exists()


def test_a_container_sees_one_strong_gpu_first(tmp_path: Path) -> None:
    """With a weaker GPU beside it, the machine was once recorded as having two strong ones."""
    version = tmp_path / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1.1  Tue\n")
    expected = Hardware("x", 2, ("NVIDIA H200", "Tesla T4"), "580.1.1").hardware_class
    assert preflight.hardware(tmp_path, ["NVIDIA H200", "Tesla T4"]) == expected
    assert expected == "1x NVIDIA H200 + 1x Tesla T4, driver 580.1.1"


# --- what is attached ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("digest", ["x@sha256:" + "0" * 64, "sha256:" + "0" * 65, "sha256:" + "0" * 64 + "\n"])
def test_a_layer_is_named_by_more_than_a_digest(digest: str) -> None:
    """The name once went to oras, whose error ended `verify` and `publish`; the good layers beside it did not count."""
    ignored: list[str] = []
    manifest = {"layers": [{"digest": digest, "mediaType": "application/vnd.dsse.envelope.v1+json", "size": 1}]}
    assert attached._layers(manifest, ignored) == []
    assert ignored
