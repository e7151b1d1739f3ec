"""compose.yaml and the examples for Kubernetes, validated against the schemas of the programs that read them."""

from __future__ import annotations

import json
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
    parts.plugin("compose")
    files = [argument for file in overlays for argument in ("--file", file)]
    command = ["docker", "compose", *files, "--profile", "server", "--profile", "tools", "config", "--quiet"]
    done = subprocess.run(command, env={**os.environ, **PINNED}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


OPTIONS = 'services: {vllm: {command: [--model, /here/model, --tensor_parallel_size, "2"]}}\n'


def test_a_trainer_and_its_server_share_a_loopback_interface_and_no_gpu(tmp_path: Path) -> None:
    parts.plugin("compose")
    own = tmp_path / "own.yaml"  # as docs/how-to/train.md says it
    own.write_text(OPTIONS)
    files = [argument for file in (COMPOSE[0], COMPOSE[1], COMPOSE[3], own) for argument in ("--file", str(file))]
    command = ["docker", "compose", *files, "--profile", "server", "config", "--format", "json"]
    environment = {**os.environ, **PINNED, "VETTED_GPUS": "0", "VETTED_SERVER_GPUS": "1,2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    train, server = services["train"], services["vllm"]
    assert (train["network_mode"], server["network_mode"]) == ("service:vllm", "none")
    assert not train.get("networks") and "hostname" not in train
    assert train["depends_on"]["vllm"]["condition"] == "service_healthy" and server["healthcheck"]["test"]
    seen = [service["environment"]["CUDA_VISIBLE_DEVICES"] for service in (train, server)]
    assert seen == ["0", "1,2"] and train["environment"]["VETTED_SERVER_GPUS"] == "1,2"
    assert train["image"] == server["image"] == IMAGE
    assert server["command"] == ["--model", "/here/model", "--tensor_parallel_size", "2"]
    assert OPTIONS.strip() in (ROOT / "docs" / "how-to" / "train.md").read_text()


def test_no_image_chosen_is_said_with_the_next_command(tmp_path: Path) -> None:
    parts.plugin("compose")
    shutil.copy(COMPOSE[0], tmp_path / "compose.yaml")
    env = {name: value for name, value in os.environ.items() if not name.startswith("VETTED_")}
    done = subprocess.run(
        ["docker", "compose", "config"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "no image is chosen yet. Next, ./vetted use" in done.stderr


def kubernetes(name: str, folder: Path) -> str:
    """An example with the image in it."""
    file = folder / name
    file.write_text((ROOT / "examples" / "kubernetes" / name).read_text().replace("${VETTED_IMAGE}", IMAGE))
    return str(file)


@pytest.mark.parametrize("name", ["storage.yaml", "train.yaml", "nodes.yaml"])
def test_the_examples_are_what_kubernetes_takes(tmp_path: Path, name: str) -> None:
    check("kubernetes-validate==1.37.0", "kubernetes-validate", "--strict", kubernetes(name, tmp_path))


# Kubeflow's models drop what they do not know: what comes out must be what went in.
MODELS = """
import sys, yaml
from kubeflow_trainer_api import models
with open(sys.argv[1]) as file:
    for document in yaml.safe_load_all(file):
        model = getattr(models, "TrainerV1alpha1" + document["kind"])
        assert model.from_dict(document).to_dict() == document, document["kind"]
"""


def test_the_trainjob_is_what_kubeflow_takes(tmp_path: Path) -> None:
    file = kubernetes("trainjob.yaml", tmp_path)
    requirements = ("kubeflow-trainer-api==2.3.0", "--with", "pyyaml")
    check(*requirements, "python", "-c", MODELS, file)
    Path(file).write_text(Path(file).read_text().replace("numNodes: 2", "nodes: 2"))
    with pytest.raises(AssertionError, match="TrainJob"):
        check(*requirements, "python", "-c", MODELS, file)
