"""The doctor in real broken environments: its first finding is the control's own, and its commands make it good."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.base import machine, project, sources
from builder.base.project import Project
from builder.certify import control, hostenv, suite
from builder.certify.certificate import ProbeResult
from builder.certify.control import Locked
from builder.certify.suite import Request
from tests.conftest import ROOT
from tests.unit.doctor.test_controls import CONTROLS

# tests/unit/doctor/test_controls.py has the others, without installing them.
REAL = ("trl0.14-transformers4.52",)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The project, with a state of its own."""
    monkeypatch.setenv("VETTED_STATE", str(tmp_path / "state"))
    return project.find(ROOT)


@pytest.fixture
def broken(home: Project, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Locked, Path]]:
    """A control, installed."""
    locked = control.load(home, request.param)
    with home.holding(request.param) as scratch:
        environment = hostenv.prepare(home, locked.bad, scratch, lambda _: None, keep=False)
    yield locked, environment
    shutil.rmtree(tmp_path / "state")


def probed(locked: Locked, environment: Path, home: Project, work: Path) -> list[ProbeResult]:
    """What the probes that must fail on a control say of an environment."""
    work.mkdir()
    sources.copy(home.smoke, work / "suite")
    request = Request(locked.control.device, locked.bad.versions, tuple(locked.control.expect.fails))
    answer = suite.run(suite.on_host(environment, work / "suite", work / "run"), request, work, lambda _: None)
    return list(answer.results)


def doctor(*argv: str) -> Any:
    path = f"{Path(machine.uv_binary()).parent}{os.pathsep}{os.environ['PATH']}"  # its commands are for uv then
    done = subprocess.run(
        [sys.executable, "-m", "doctor", "--json", *argv],
        cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("broken", "config", "advisory"), [(k, *CONTROLS[k]) for k in REAL], indirect=["broken"])
def test_its_first_finding_is_right_and_its_commands_help(
    broken: tuple[Locked, Path], config: str, advisory: str, home: Project, tmp_path: Path
) -> None:
    locked, environment = broken
    before = probed(locked, environment, home, tmp_path / "before")
    assert "failed" in {result.outcome for result in before}
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "run.log").write_text("\n".join(f"{result.reason}\n{result.log_tail}" for result in before))
    answer = doctor(
        "--python", str(environment), "--config", str(tmp_path / "config.yaml"), "--log", str(tmp_path / "run.log")
    )
    first = answer["findings"][0]
    assert (first["rule"], first["confidence"]) == (advisory, "certain")
    assert first["commands"]
    for command in first["commands"]:
        program, *arguments = shlex.split(command)
        assert program == "uv"
        env = {**os.environ, **machine.uv_environment(locked.bad.stack.torch)}
        done = subprocess.run([machine.uv_binary(), *arguments], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    after = probed(locked, environment, home, tmp_path / "after")
    assert [(result.name, result.outcome) for result in after] == [(result.name, "passed") for result in before], after


@pytest.mark.usefixtures("docker")
def test_an_image_that_docker_does_not_have_is_not_looked_for_elsewhere() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "builder", "doctor", "--image", "vetted-no-such-image:1"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")
    assert "Docker has no image vetted-no-such-image:1" in done.stderr
