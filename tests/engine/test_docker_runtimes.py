"""Containers of compose.yaml under both runcs: Debian 12's, which ignores the mode of a tmpfs, and a newer one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.engine.conftest import Workshop
from tests.engine.training import run

WRITE = (
    "mkdir -p ~/.triton/cache ~/.cache/vllm ~/.config && touch ~/.triton/cache/x ~/.cache/vllm/x /tmp/x && echo wrote"
)


NEWER = "runc-trixie"


def overlay(runtime: str, folder: Path) -> Path:
    """A compose file that runs the services with a runtime."""
    info = subprocess.run(
        ["docker", "info", "--format", "{{json .Runtimes}}"], capture_output=True, text=True, check=True
    )
    if runtime not in json.loads(info.stdout):  # in CI too, where Debian 13 may be out of reach
        pytest.skip(f"Docker has no runtime {runtime}; sudo scripts/install-runc")
    services = {name: {"runtime": runtime} for name in ("train", "shell")}
    file = folder / "runtime.yaml"
    file.write_text(json.dumps({"services": services}))  # JSON is YAML
    return file


@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize("runtime", ["runc", NEWER])
def test_the_home_folder_can_be_written(chosen: Workshop, runtime: str, tmp_path: Path) -> None:
    """vLLM, Triton and scripts of one's own write there."""
    tmp_path.chmod(0o755)
    code, output = run(chosen, "shell", "sh", "-c", WRITE, cwd=tmp_path, files=[overlay(runtime, tmp_path)])
    assert (code, "wrote" in output) == (0, True), output


@pytest.mark.usefixtures("docker")
def test_a_run_trains_under_the_newer_one_too(chosen: Workshop, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    code, output = run(chosen, "train", "--max_steps", "1", cwd=tmp_path, files=[overlay(NEWER, tmp_path)])
    assert code == 0, output
