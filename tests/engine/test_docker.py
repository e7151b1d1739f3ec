"""The docker engine: the image built bit for bit, the suite inside it, hardened, and nothing left behind."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import zstandard

from builder.base import project, sources
from builder.certify import certificate, engine, suite
from builder.image import build, context, daemon, oci, target
from tests.engine import debian_locks
from tests.engine.conftest import DOCKER, GPU_ONLY, PLANTED, ROOT, STACK, Workshop
from tests.engine.interruption import containers, killed_while, succeeds

pytestmark = pytest.mark.usefixtures("docker")


def test_the_subject_is_the_digest_that_docker_reports(
    workshop: Workshop, built: oci.Image, certified: certificate.Statement
) -> None:
    reference = target.reference(workshop.project, workshop.lock)
    reported = subprocess.run(
        ["docker", "image", "inspect", "--format", "{{.Id}}", reference], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert reported == built.manifest
    assert certified.subject[0].digest == certificate.bare(reported)
    assert certified.predicate.notRun.keys() == GPU_ONLY


def test_the_image_built_here_is_the_one_whose_certificate_is_committed(workshop: Workshop, built: oci.Image) -> None:
    """On another machine, with another index, on another day."""
    if debian_locks.differ(workshop.root, ROOT):
        pytest.skip(
            "the mirror replaced Debian packages of the lock; set VETTED_DEBIAN_MIRROR to a snapshot of its day"
        )
    committed = certificate.read(certificate.path(project.find(ROOT), STACK, "cpu", "docker"))
    assert committed.subject[0].digest == certificate.bare(built.manifest)


def test_no_secret_of_the_machine_is_in_what_leaves_it(
    workshop: Workshop, built: oci.Image, certified: certificate.Statement
) -> None:
    needle = PLANTED.encode()
    for path in (built.layout / "blobs").rglob("*"):
        if path.is_file():
            assert not holds(path, needle), path
    kept = [
        path for path in (workshop.root / ".vetted").rglob("*") if path.is_file() and path.stat().st_size < 10_000_000
    ]
    assert [path for path in kept if needle in path.read_bytes()] == []
    assert PLANTED not in certified.to_json()
    history = subprocess.run(
        ["docker", "image", "history", "--no-trunc", target.reference(workshop.project, workshop.lock)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "uv pip install" in history.stdout or "COPY" in history.stdout
    assert PLANTED not in history.stdout


def holds(blob: Path, needle: bytes) -> bool:
    """Is it in a file, or in what the file was compressed from?"""
    with blob.open("rb") as file:
        compressed = file.read(4) == b"\x28\xb5\x2f\xfd"
        file.seek(0)
        stream = zstandard.ZstdDecompressor().stream_reader(file) if compressed else file
        end = b""
        while chunk := stream.read(1 << 24):
            if needle in end + chunk:
                return True
            end = chunk[-len(needle) :]
    return False


def test_a_secret_would_be_found(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    text = b"x" * ((1 << 24) - 5) + PLANTED.encode() + b"y" * 100
    plain.write_bytes(text)
    packed.write_bytes(zstandard.ZstdCompressor().compress(text))
    assert holds(plain, PLANTED.encode())
    assert holds(packed, PLANTED.encode())
    assert not holds(plain, b"something else")


def test_the_same_key_again_starts_no_container(workshop: Workshop, certified: certificate.Statement) -> None:
    assert certified.predicate.result == "PASSED"
    begin = time.time()
    assert workshop.json(*DOCKER)["reused"] is True
    events = [
        "docker",
        "events",
        "--since",
        f"{begin:.3f}",
        "--until",
        f"{time.time():.3f}",
        "--filter",
        "event=create",
    ]
    assert subprocess.run(events, capture_output=True, text=True, check=True).stdout == ""
    assert containers() == []


def test_the_image_says_what_it_holds(workshop: Workshop, certified: certificate.Statement) -> None:
    assert certified.predicate.result == "PASSED"
    reference = target.reference(workshop.project, workshop.lock)
    done = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", reference, "cat", "/etc/vetted/stack.json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == context.description(workshop.project, workshop.lock)


def test_no_file_of_the_image_is_younger_than_the_lock_says(
    workshop: Workshop, certified: certificate.Statement
) -> None:
    assert certified.predicate.result == "PASSED"

    def files(*condition: str) -> list[str]:
        argv = ["find", "/opt", "/usr", "/var", "/home", "/etc/vetted", *condition]
        reference = target.reference(workshop.project, workshop.lock)
        return subprocess.run(
            ["docker", "run", "--rm", "--network", "none", reference, *argv],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.splitlines()

    assert files("-newermt", f"@{workshop.lock.epoch}") == []
    assert len(files("!", "-newermt", f"@{workshop.lock.epoch}")) > 10_000


PRIVILEGES = """
\"\"\"What may a probe do?\"\"\"

from __future__ import annotations

import os
import pathlib
import socket

from smoke.probe import Bound, Probe, Reading

NAMES = ("uid", "gid", "capabilities", "no_new_privileges", "written", "interfaces", "supervisor_opened")
PROBE = Probe("it does not", tuple(Bound(name, "as is", headline=name == "uid") for name in NAMES), ())


def run(_):
    status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
    yield Reading("uid", os.getuid())
    yield Reading("gid", os.getgid())
    yield Reading("capabilities", int(status["CapEff"], 16))
    yield Reading("no_new_privileges", int(status["NoNewPrivs"]))
    yield Reading("written", attempt(lambda: pathlib.Path("/opt/venv/written").touch()))
    yield Reading("interfaces", len([name for _, name in socket.if_nameindex() if name != "lo"]))
    ways = [lambda: os.listdir("/proc/1/fd"), lambda: open("/proc/1/mem", "rb"), lambda: os.kill(1, 0)]
    yield Reading("supervisor_opened", sum(map(attempt, ways)))


def attempt(way):
    try:
        way()
    except OSError:
        return 0
    return 1
"""


def test_probes_run_without_privileges_and_cannot_reach_the_supervisor(
    workshop: Workshop, certified: certificate.Statement, tmp_path: Path
) -> None:
    assert certified.predicate.result == "PASSED"
    built = build.needed(workshop.project, workshop.lock)
    sources.copy(ROOT / "smoke", tmp_path)
    (tmp_path / "own").mkdir(mode=0o755)
    (tmp_path / "own" / "privileges.py").write_text(PRIVILEGES)
    tmp_path.chmod(0o755)
    loaded = daemon.load(built.image, built.reference)
    command = engine.in_image(tmp_path, "dev.vetted.run=test", loaded.reference, "3.11", "cpu", 2048)
    request = suite.Request("cpu", {})
    runner = suite.Runner([*command, "--probes", "/vetted/own"])
    (tmp_path / "scratch").mkdir()
    (result,) = suite.run(runner, request, tmp_path / "scratch", lambda _: None).results
    assert result.outcome == "passed", result.log_tail
    assert {measurement.name: measurement.value for measurement in result.measurements} == {
        "uid": 1000, "gid": 1000, "capabilities": 0, "no_new_privileges": 1, "written": 0, "interfaces": 0,
        "supervisor_opened": 0,
    }  # fmt: skip


def wait_for_container(seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not containers():
        assert time.monotonic() < deadline, "no container was started"
        time.sleep(0.1)


@pytest.mark.parametrize("moment", [0.0, 1.0, 5.0])
def test_a_killed_run_leaves_no_container(workshop: Workshop, certified: certificate.Statement, moment: float) -> None:
    with workshop.start(*DOCKER, "--force") as child:
        wait_for_container()
        time.sleep(moment)
        child.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while (left := containers()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []
    assert certificate.read(workshop.certificate("docker")) == certified


def test_build_survives_being_killed(workshop: Workshop, certified: certificate.Statement) -> None:
    record = workshop.root / ".vetted" / "images" / f"{STACK}.json"
    record.unlink()  # the image counts as not built
    shutil.rmtree(workshop.root / ".vetted" / "rootfs")
    for program in ("mmdebstrap", "buildx build"):
        killed_while(workshop, ("build", STACK), program)
        assert not record.exists()
    succeeds(workshop, ("build", STACK))
    assert certificate.bare(workshop.json("build", STACK)["manifest"]) == certified.subject[0].digest


def test_bake_makes_the_same_image_and_keeps_it_like_a_build(workshop: Workshop, built: oci.Image) -> None:
    shutil.rmtree(workshop.project.state / "images")
    assert workshop.json("bake", STACK)[STACK]["manifest"] == built.manifest
    kept = build.existing(workshop.project, workshop.lock)
    assert kept is not None and kept.image.manifest == built.manifest


def test_no_engine_is_said_with_how_to_get_one(workshop: Workshop) -> None:
    done = workshop.vetted(*DOCKER, "--force", DOCKER_HOST="unix:///nonexistent/docker.sock")
    assert done.returncode == 4
    assert "scripts/install-engine" in done.stderr
