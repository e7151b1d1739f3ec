"""Attacks on a fleet: by a package of the image that a pod runs, by a cluster's answers, and by a foreign `.vetted`."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from builder.base import sealed
from builder.base.project import Project
from builder.certify import certificate
from builder.fleet import manifest, slurm
from builder.fleet.unit import Outcome
from tests.conftest import TINY, Small
from tests.unit.fleet import test_slurm
from tests.unit.fleet.conftest import ApiServer, Fleet, runs
from tests.unit.fleet.conftest import api as api
from tests.unit.fleet.conftest import built as built
from tests.unit.fleet.conftest import fleet as fleet

FORGES = "#!/bin/sh\ntouch {ran}\necho 'Forged GPU, 580.1'\n"
SAYS_ENVIRONMENT = '#!/bin/sh\necho "$PATH, ${LD_PRELOAD-none} ${LD_LIBRARY_PATH-none} ${PYTHONPATH-none}"\n'
OVERLAY = "24 1 0:30 / / ro,relatime - overlay overlay rw\n"


def mount(place: Path) -> str:
    return f"31 24 8:1 /usr/bin/nvidia-smi {place} ro,nosuid - ext4 /dev/sda1 rw\n"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def pod(tmp_path: Path) -> ModuleType:
    """The first process of a pod, as a module: it looks for the node's nvidia-smi in this folder."""
    spec = importlib.util.spec_from_file_location("pod", manifest.SCRIPT)
    assert spec and spec.loader
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.NVIDIA_SMI = (str(tmp_path / "usr/bin/nvidia-smi"),)
    module.MOUNTS = str(tmp_path / "mountinfo")
    (tmp_path / "mountinfo").write_text(OVERLAY)
    return module  # type: ignore[no-any-return]


def test_a_program_of_a_package_poses_as_nvidia_smi(tmp_path: Path) -> None:
    """A wheel's script of that name is first in the image's PATH; it would run as root, and its GPUs be believed."""
    ran = tmp_path / "ran"
    for name in ("nvidia-smi", "uname", "sh", "python3"):
        script(tmp_path / "venv" / "bin" / name, FORGES.format(ran=ran))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "request").write_text("{}\n")
    done = subprocess.run(
        [sys.executable, "-I", "-S", manifest.SCRIPT, tmp_path / "request", tmp_path / "log", "/bin/true"],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert not any(gpu[0] == "Forged GPU" for gpu in said["gpus"]) and not ran.exists()
    assert said["kernel"] == os.uname().release


@pytest.mark.parametrize("put", [script, lambda path, text: path.symlink_to(script(path.parent / "other", text))])
def test_the_image_has_a_file_where_the_node_puts_its_own(
    pod: ModuleType, tmp_path: Path, put: Callable[[Path, str], None]
) -> None:
    """A file of the image, or a link to one, is at the very path: only what the node mounted there is started."""
    program = tmp_path / "usr" / "bin" / "nvidia-smi"
    script(program.parent / "sh", "")
    put(program, FORGES.format(ran=tmp_path / "ran"))
    assert pod.gpus() == []
    (tmp_path / "mountinfo").write_text(OVERLAY + mount(program.with_name("other-place")))
    assert pod.gpus() == []
    (tmp_path / "mountinfo").unlink()
    assert pod.gpus() == [] and not (tmp_path / "ran").exists()


def test_variables_of_the_image_reach_the_nodes_nvidia_smi(
    pod: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LD_PRELOAD and the like would put code of a package into the program that is believed."""
    program = script(tmp_path / "usr" / "bin" / "nvidia-smi", SAYS_ENVIRONMENT)
    (tmp_path / "mountinfo").write_text(OVERLAY + mount(program))
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    monkeypatch.setenv("PATH", f"{tmp_path}/venv/bin:/usr/bin")
    assert pod.gpus() == [["/usr/bin:/bin", "none none none"]]


def test_another_container_of_the_pod_ran_the_image(small: Small, api: ApiServer, fleet: Fleet, tmp_path: Path) -> None:
    """A second container, listed first, has the expected digest, and the one of the suite has not."""
    whole = runs(tmp_path / "nodes")

    def injected(server: ApiServer, job: dict[str, Any]) -> None:
        whole(server, job)
        for pod in server.of("pods"):
            (suite,) = pod["status"]["containerStatuses"]
            other = {**suite, "imageID": f"registry.example/x@sha256:{'0' * 64}"}
            pod["status"]["containerStatuses"] = [{**suite, "name": "proxy"}, other]

    api.fate = injected
    answer = fleet()
    assert answer.code == 1 and "the node ran another image" in answer.out
    assert not certificate.path(small.project, TINY, "cpu", "kubernetes").exists()


@pytest.mark.parametrize("name", ["../../../../evil", "/tmp/evil", "a/../../b", ".."])
def test_the_name_of_a_pod_leads_out_of_the_folder_of_logs(
    small: Small, api: ApiServer, fleet: Fleet, tmp_path: Path, name: str
) -> None:
    """A server that is none of Kubernetes' names the file to which a log is written."""
    whole = runs(tmp_path / "nodes")

    def renamed(server: ApiServer, job: dict[str, Any]) -> None:
        whole(server, job)
        for pod in server.of("pods"):
            pod["metadata"]["name"] = name

    api.fate = renamed
    before = {path for path in small.root.rglob("*") if path.is_file()}
    answer = fleet()
    assert answer.code == 1 and "something answers that is no API server of Kubernetes" in answer.err
    written = {path for path in small.root.rglob("*") if path.is_file()} - before
    assert not any(path.suffix == ".log" for path in written)


class Runs:
    """A pickle that writes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("by_them", [False, True])
def test_the_state_brings_a_job_of_slurm_and_its_answer(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_them: bool
) -> None:
    """A cache of CI has the journal of a fleet that never ran here, and an answer whose reading would run code."""
    programs = tmp_path / "programs"
    test_slurm.install(programs, monkeypatch)
    (programs / "queue").write_text("")
    (programs / "next").write_text("1")
    folder, own, unit = small.project.state / "fleet", "vetted-20261120-101500-01234567", test_slurm.UNIT
    (folder / "logs" / own).mkdir(parents=True)
    answer = pickle.dumps(("success", Outcome(unit, "n1", 1.0, b"{}"), Runs(tmp_path / "ran")))
    (folder / "logs" / own / "7_0_result.pkl").write_bytes(answer)
    journal = folder / slurm.JOURNAL
    journal.write_text(json.dumps({slurm._identity(small.project, unit): f"{own}/7"}))
    if by_them:
        with monkeypatch.context() as theirs:
            theirs.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
            sealed.replace(journal, slurm.SEALED, journal.read_bytes(), tmp_path)
            assert sealed.intact(journal, slurm.SEALED, journal.read_bytes())
    jobs = submit(small.project, folder, small.scratch())
    assert jobs[unit].paths.folder.name != own and not (tmp_path / "ran").exists()
    assert jobs[unit].job_id == "1", "it is submitted, as if there were no journal"
    assert submit(small.project, folder, small.scratch())[unit].paths.folder == jobs[unit].paths.folder


def submit(home: Project, folder: Path, scratch: Path) -> dict[Any, Any]:
    return slurm.submit(home, [test_slurm.UNIT], slurm.Limits(), folder, scratch, lambda _: None)
