"""A repository of the user's own with what `vetted use --into` wrote: cloned elsewhere, it trains."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from builder.base.project import Project
from builder.image import oci
from builder.publish import dotenv, standalone
from builder.publish.standalone import Source
from tests import parts
from tests.conftest import ROOT
from tests.engine.conftest import STACK, Workshop
from tests.engine.training import compose, run, runs

IMAGE = f"registry.example/vetted/images@sha256:{'a' * 64}"
ADDRESS = re.compile(r"http://127\.0\.0\.1:8888/lab\?token=(\w+)")
GIT = ("-c", "user.name=x", "-c", "user.email=x@example.org")


def config(folder: Path, *options: str, **env: str) -> dict[str, object]:
    """What Compose reads in a folder, or in one below it, with nothing of this machine's .env."""
    command = ["docker", "compose", *options, "--profile", "tools", "config", "--format", "json"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("VETTED_", "COMPOSE_"))}
    done = subprocess.run(
        command, cwd=folder, env={**clean, "PWD": str(folder), **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    model: dict[str, object] = json.loads(done.stdout)
    return {name: value for name, value in model.items() if not name.startswith("x-")}


@pytest.mark.parametrize(
    "overlays", [[], [dotenv.GPUS], [dotenv.NETWORK], [dotenv.SERVER], [dotenv.GPUS, dotenv.NETWORK, dotenv.SERVER]]
)
def test_one_file_says_what_the_files_say_together(overlays: list[str], tmp_path: Path) -> None:
    parts.plugin("compose")
    files = [dotenv.BASE, *overlays]
    text = standalone.document(Project(ROOT), STACK, Source(IMAGE), files)
    alone, together = tmp_path / "alone" / "project", tmp_path / "together" / "project"
    for folder in (alone, together):
        folder.mkdir(parents=True)
    (alone / "compose.yaml").write_text(text)
    for file in files:
        shutil.copy(ROOT / file, together)
    environment = {
        "VETTED_IMAGE": IMAGE, "VETTED_STACK": STACK, "VETTED_CERTIFICATES": str(alone / "vetted"),
        "VETTED_CACHE": "/cache", "VETTED_MEMORY": "3g",
    }  # fmt: skip
    named = [word for file in files for word in ("--file", file)]
    expected = json.dumps(config(together, *named, "--profile", "server", **environment))
    services = json.loads(expected.replace(str(together), str(alone)))
    served = dotenv.SERVER in overlays
    for name in ("smoke", *(() if served else ("vllm",))):
        del services["services"][name]
    if served:
        del services["services"]["vllm"]["profiles"]
    own: Any = config(alone, VETTED_CACHE="/cache", VETTED_MEMORY="3g")
    assert own["services"]["train"]["environment"].pop("VETTED_INTO") == "1"
    for service in own["services"].values():
        service.get("environment", {}).pop("VETTED_INTO", None)
    assert own == services


def test_a_command_in_a_subfolder_sees_that_folder_and_results_stay_with_the_file(
    tmp_path: Path,
) -> None:
    parts.plugin("compose")
    below = tmp_path / "experiments" / "first"
    below.mkdir(parents=True)
    (tmp_path / "compose.yaml").write_text(standalone.document(Project(ROOT), STACK, Source(IMAGE), [dotenv.BASE]))
    (tmp_path / ".env").write_text("VETTED_USER=4321:1234\n")

    def mounts(**env: str) -> dict[str, str]:
        service = json.loads(json.dumps(config(below, **env)))["services"]["train"]
        assert service["user"] == "4321:1234"
        return {volume["target"]: volume["source"] for volume in service["volumes"]}

    root = str(tmp_path)
    assert mounts() == {
        "/here": str(below), "/runs": f"{root}/runs", "/run/vetted": f"{root}/vetted",
        "/cache/hub": f"{root}/.huggingface/hub", "/cache/datasets": f"{root}/.huggingface/datasets",
    }  # fmt: skip
    assert mounts(VETTED_WORK=".")["/here"] == root


SCRIPT = """\
import os, sys, torch, trl
from pathlib import Path
print(sorted(os.listdir()), os.getcwd(), file=sys.stderr)
Path(os.environ["VETTED_OUTPUT"], "result.txt").write_text(trl.__version__)
"""


def test_a_clone_trains_from_a_subfolder_without_this_project(
    workshop: Workshop, registry: tuple[str, ...], built: oci.Image, docker: object, tmp_path: Path
) -> None:
    assert docker
    mine, clone = tmp_path / "mine", tmp_path / "clone"
    subprocess.run(["git", "init", "--quiet", mine], check=True, capture_output=True)
    (mine / "work").mkdir()
    (mine / "work" / "my_train.py").write_text(SCRIPT)
    assert workshop.json("use", STACK, *registry, "--into", str(mine))["file"] == str(mine / "compose.yaml")
    subprocess.run(
        ["git", *GIT, "add", "compose.yaml", "vetted", ".huggingface", "runs", "work"],
        cwd=mine,
        check=True,
        capture_output=True,
    )
    subprocess.run(["git", *GIT, "commit", "--quiet", "--message", "x"], cwd=mine, check=True, capture_output=True)
    subprocess.run(["git", "clone", "--quiet", str(mine), str(clone)], check=True, capture_output=True)
    assert not (clone / ".env").exists()
    if os.geteuid() == 0:  # the clone of a person, who is never root
        subprocess.run(["chown", "-R", "1000:1000", str(clone)], check=True)
    subprocess.run(["chmod", "a+rx", str(tmp_path)], check=True)
    user = f"{(clone / 'runs').stat().st_uid}:{(clone / 'runs').stat().st_gid}"
    code, output = run(clone, "train", "my_train.py", cwd=clone / "work", env={"VETTED_USER": user})
    assert code == 0, output
    assert "['my_train.py'] /here" in output
    assert "is certified for this hardware" in output
    (finished,) = runs(clone)
    assert (finished / "result.txt").read_text() == workshop.lock.versions["trl"]
    assert json.loads((finished / "run.json").read_text())["image"].endswith(built.manifest)


def test_a_shell_has_the_stacks_python_and_sees_what_training_sees(chosen: Workshop, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print('of mine')\n")
    subprocess.run(["chmod", "-R", "a+rX", str(tmp_path)], check=True)
    ask = (
        "import trl, mine, os; print(trl.__version__); open('/runs/.shell', 'w').close(); os.remove('/runs/.shell');"
        "open(os.path.expanduser('~/x'), 'w'); open('/cache/datasets/.shell', 'w'); os.remove('/cache/datasets/.shell')"
    )
    code, output = run(chosen, "shell", "python", "-c", ask, cwd=tmp_path)
    assert code == 0, output
    assert f"of mine\n{chosen.lock.versions['trl']}\n" in output
    code, output = run(chosen, "shell", "sh", "-c", "touch /here/x; touch /cache/hub/x", cwd=tmp_path)
    assert code == 1
    assert output.count("Read-only file system") == 2


def test_a_notebook_without_jupyterlab_says_how_to_get_it(chosen: Workshop) -> None:
    code, output = run(chosen, "notebook")
    assert code == 4
    assert (
        "this image has no JupyterLab\nnext, in a clone of Vetted: vetted extend STACK examples/notebook.txt" in output
    )


def test_jupyterlab_in_a_layer_of_its_own_answers_with_its_token_alone(
    chosen: Workshop, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shutil.copytree(ROOT / "examples", chosen.root / "examples", dirs_exist_ok=True)
    stacks = {"VETTED_STACKS": str(tmp_path / "stacks")}
    (tmp_path / "stacks").mkdir()
    chosen.json("extend", STACK, "examples/notebook.txt", "--name", "notebook", env=stacks)
    chosen.json("build", "notebook", env=stacks)
    mine = tmp_path / "mine"
    (mine / "notebooks").mkdir(parents=True)
    reference = chosen.json("use", "notebook", "--into", str(mine), env=stacks)["image"]
    request.addfinalizer(lambda: subprocess.run(["docker", "image", "rm", "--force", reference], capture_output=True))
    subprocess.run(["chmod", "a+rx", str(tmp_path)], check=True)
    try:
        typed(mine, "up", "--detach", "notebook")
        address = None
        while address is None:
            assert typed(mine, "ps", "--quiet", "notebook"), typed(mine, "logs", "notebook")
            address = ADDRESS.search(typed(mine, "logs", "notebook"))
            time.sleep(0.5)
        assert status("/api/contents") == 403
        assert status(f"/api/contents?token={address[1]}") == 200
    finally:
        typed(mine, "down")


def typed(folder: Path, *argv: str) -> str:
    """What `docker compose` prints in the folder of notebooks there."""
    with compose(folder, *argv, cwd=folder / "notebooks") as child:
        output, _ = child.communicate()
    assert child.returncode == 0, output
    return output


def status(path: str) -> int:
    """The HTTP status with which JupyterLab answers a GET request."""
    with closing(HTTPConnection("127.0.0.1", 8888, timeout=60)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status
