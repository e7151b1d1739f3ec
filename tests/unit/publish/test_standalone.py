"""`vetted use --into`: a compose.yaml in a repository of the user's own, which needs nothing of this project."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.image.build import Built
from builder.publish import standalone
from tests import parts
from tests.conftest import TINY, Small
from tests.registry.conftest import make_image
from tests.unit.conftest import Command
from tests.unit.runtime.test_compose import Loader

BASE = {"train", "shell", "notebook", "preflight", "tensorboard"}


@pytest.fixture(autouse=True)
def no_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")


@pytest.fixture
def built(small: Small) -> Built:
    return make_image(small)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A repository of the user's own."""
    folder = tmp_path / "mine"
    folder.mkdir()
    subprocess.run([parts.git(), "init", "--quiet", folder], check=True, capture_output=True)
    return folder


def documents(folder: Path) -> list[Any]:
    return list(yaml.load_all((folder / "compose.yaml").read_text(), Loader))


def test_it_pins_the_image_and_names_nothing_of_this_project(
    command: Command, small: Small, built: Built, mine: Path
) -> None:
    small.issue("docker", subject=built.image.manifest)
    answer = command(small.root, "use", TINY, "--into", str(mine))
    assert answer.code == 0, answer.err
    image = f"vetted/{TINY}@{built.image.manifest}"
    assert f"{TINY}: {image}\n  written to {mine}/compose.yaml" in answer.out
    assert (
        f"next: cd {mine}; git add compose.yaml vetted .huggingface runs; docker compose run --rm train" in answer.out
    )
    assert f"echo .env >> {mine}/.gitignore" in answer.err
    (document,) = documents(mine)
    assert document["services"].keys() == BASE
    for service in document["services"].values():
        assert service["image"] == image
        for volume in service["volumes"]:
            assert volume["source"].startswith(
                ("./runs", "./vetted", "${VETTED_WORK:-", "${VETTED_CACHE:-./.huggingface}/")
            )
    text = (mine / "compose.yaml").read_text()
    assert not [word for word in (str(small.root), ".vetted", "${VETTED_IMAGE", "${VETTED_STACK") if word in text]
    assert not (small.root / ".env").exists()
    (certificate,) = (mine / "vetted" / "certificates").iterdir()
    assert (
        json.loads((mine / "vetted" / "certificates.json").read_text())["certificates"][0]["file"] == certificate.name
    )


def test_what_git_commits_is_all_that_a_clone_needs(command: Command, small: Small, built: Built, mine: Path) -> None:
    (mine / ".gitignore").write_text(".env\n")
    answer = command(small.root, "use", TINY, "--into", str(mine))
    assert (answer.code, ".gitignore" in answer.err) == (0, False)
    assert "the image is only on this machine" in answer.err
    (mine / "runs" / "20260101-000000").mkdir()
    (mine / "runs" / "20260101-000000" / "run.json").touch()
    (mine / ".huggingface" / "hub" / "model").touch()
    git = [parts.git(), "-C", str(mine), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(
        [*git, "add", "compose.yaml", "vetted", ".huggingface", "runs", ".gitignore"], check=True, capture_output=True
    )
    subprocess.run([*git, "commit", "--quiet", "--message", "x"], check=True, capture_output=True)
    listed = subprocess.run([*git, "ls-files"], check=True, capture_output=True, text=True).stdout.split()
    assert set(listed) == {
        ".gitignore", "compose.yaml", "vetted/advisories.json", "vetted/certificates.json", "runs/.gitignore",
        ".huggingface/.gitignore", ".huggingface/hub/.gitignore", ".huggingface/datasets/.gitignore",
    }  # fmt: skip
    assert built.image.manifest in (mine / "compose.yaml").read_text()


def test_what_differs_between_machines_is_in_env_beside_it(
    command: Command, small: Small, built: Built, mine: Path
) -> None:
    assert built
    (mine / ".env").write_text("MY_SETTING=1\nVETTED_MEMORY=3g\n")
    assert command(small.root, "use", TINY, "--into", str(mine)).code == 0
    lines = dict(line.split("=", 1) for line in (mine / ".env").read_text().splitlines())
    status = (mine / "runs").stat()
    assert lines.keys() == {"MY_SETTING", "VETTED_MEMORY", "VETTED_PIDS", "VETTED_USER", "VETTED_CACHE"}
    assert lines["VETTED_MEMORY"] == "3g"
    assert lines["VETTED_USER"] == f"{status.st_uid}:{status.st_gid}"


def test_overlays_are_documents_behind_it_until_they_are_taken_back(
    command: Command, small: Small, built: Built, mine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert built
    monkeypatch.setenv("VETTED_SECRETS", str(tmp_path / "secrets"))
    assert command(small.root, "use", TINY, "--into", str(mine), "--network", "--server").code == 0
    base, network, server = documents(mine)
    assert base["services"].keys() == {*BASE, "vllm"}
    assert "profiles" not in base["services"]["vllm"], "nothing else starts it"
    assert network["services"]["train"]["networks"] == ["outside"]
    assert server["services"]["train"]["network_mode"] == "service:vllm"
    first = (mine / "compose.yaml").read_text()
    make_image(small, "another, which nobody asked for")
    again = command(small.root, "use", "--into", str(mine), "--json")
    assert (again.json["stack"], again.json["changed"]) == (TINY, False)
    assert (mine / "compose.yaml").read_text() == first
    answer = command(small.root, "use", "--into", str(mine), "--no-server")
    assert (answer.code, f"written to {mine}/compose.yaml" in answer.out) == (0, True)
    base, network = documents(mine)
    assert base["services"].keys() == BASE and network["services"].keys() == {"train", "shell", "notebook"}
    assert base["services"]["train"]["image"].endswith(built.image.manifest)
    assert command(small.root, "use", TINY, "--into", str(mine)).code == 0
    assert not documents(mine)[0]["services"]["train"]["image"].endswith(built.image.manifest), "a stack was named"


def test_a_stack_for_gpus_brings_its_document(small: Small) -> None:
    source = standalone.Source("a.b/c@sha256:1")
    text = standalone.document(small.project, TINY, source, ["compose.yaml", "compose.gpu.yaml"])
    _, gpus = yaml.load_all(text, Loader)
    assert gpus["services"].keys() == BASE - {"tensorboard"}


@pytest.mark.parametrize("name", ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"])
def test_a_file_of_somebody_else_stays_and_the_way_out_is_said(
    command: Command, small: Small, built: Built, mine: Path, name: str
) -> None:
    assert built
    (mine / name).write_text("services: {}\n")
    answer = command(small.root, "use", TINY, "--into", str(mine))
    assert answer.code == 6
    assert str(mine / name) in answer.err
    assert f"--into {mine}/training" in answer.err
    assert {path.name for path in mine.iterdir()} == {".git", name}
    assert (mine / name).read_text() == "services: {}\n"


def test_changes_of_a_person_are_not_lost(command: Command, small: Small, built: Built, mine: Path) -> None:
    assert built
    assert command(small.root, "use", TINY, "--into", str(mine)).code == 0
    path = mine / "compose.yaml"
    path.write_text(path.read_text().replace("2m", "5m"))
    answer = command(small.root, "use", TINY, "--into", str(mine))
    assert answer.code == 6
    assert "was changed after `vetted use` wrote it" in answer.err
    assert "move the changes to compose.override.yaml" in answer.err
    assert "5m" in path.read_text()


def test_a_folder_that_is_not_there_is_usage(command: Command, small: Small, mine: Path) -> None:
    answer = command(small.root, "use", TINY, "--into", str(mine / "typo"))
    assert answer.code == 2
    assert "--into" in answer.err
