"""Attacks by a package of the image on what a pod says of itself: the pod's first process is root, and is believed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from builder.fleet import manifest

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
