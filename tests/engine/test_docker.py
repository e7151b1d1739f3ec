"""The docker engine: the image built bit for bit, the suite inside it, hardened, and nothing left behind."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from builder import build, certificate, engine, oci
from tests.engine.conftest import GPU_ONLY, STACK, Workshop, containers, killed_at_random_moments

pytestmark = pytest.mark.usefixtures("docker")
DOCKER = ("certify", STACK, "--engine", "docker")


@pytest.fixture(scope="session")
def built(workshop: Workshop, docker: engine.Docker) -> oci.Image:  # noqa: ARG001
    answer = workshop.json("build", STACK)
    image = oci.read(Path(answer["layout"]))
    assert image.manifest == answer["manifest"]
    return image


@pytest.fixture(scope="session")
def certified(workshop: Workshop, built: oci.Image) -> certificate.Statement:  # noqa: ARG001
    done = workshop.vetted(*DOCKER)
    assert done.returncode == 0, done.stdout + done.stderr
    return certificate.read(workshop.certificate("docker"))


def test_the_subject_is_the_digest_that_docker_reports(
    workshop: Workshop, built: oci.Image, certified: certificate.Statement
) -> None:
    reference = build.reference(workshop.lock)
    reported = subprocess.run(
        ["docker", "image", "inspect", "--format", "{{.Id}}", reference], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert reported == built.manifest
    assert certified.subject[0].digest == certificate.bare(reported)
    assert certified.predicate.notRun.keys() == GPU_ONLY


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
    reference = build.reference(workshop.lock)
    said = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", reference, "cat", "/etc/vetted/stack.json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(said.stdout) == build.description(workshop.project, workshop.lock)


PRIVILEGES = """
import json, os, pathlib, socket
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
try:
    pathlib.Path("/opt/venv/written").touch()
    written = True
except OSError:
    written = False
print(json.dumps({"uid": os.getuid(), "gid": os.getgid(), "capabilities": int(status["CapEff"], 16),
    "no_new_privileges": status["NoNewPrivs"], "written": written,
    "interfaces": [name for _, name in socket.if_nameindex()]}))
"""


def test_the_suite_runs_without_privileges(workshop: Workshop, certified: certificate.Statement) -> None:
    assert certified.predicate.result == "PASSED"
    command = engine.in_image(workshop.root, STACK, build.reference(workshop.lock), "cpu", 2048)
    assert command[-3:] == ["python", "-m", "smoke"]
    ran = subprocess.run([*command[:-2], "-c", PRIVILEGES], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == {
        "uid": 1000, "gid": 1000, "capabilities": 0, "no_new_privileges": "1", "written": False, "interfaces": ["lo"],
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

    def forget() -> None:
        record.unlink(missing_ok=True)  # the image counts as not built
        shutil.rmtree(workshop.root / ".vetted" / "rootfs", ignore_errors=True)

    killed_at_random_moments(workshop, ("build", STACK), 30.0, forget)
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


def test_without_an_engine_the_host_is_chosen_and_said(workshop: Workshop) -> None:
    done = workshop.vetted("certify", STACK, "--probe", "imports", DOCKER_HOST="unix:///nonexistent/docker.sock")
    assert done.returncode == 0
    assert "no Docker engine answers: certifying the lock on this host" in done.stderr
