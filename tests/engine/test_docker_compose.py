"""Training with `docker compose` in the image of test_docker.py: published, pulled and carried, then gone from here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from builder.certify import certificate
from builder.image import oci, target
from tests.engine.conftest import STACK, Workshop
from tests.engine.training import compose, rows, runs, train
from tests.registry.conftest import PASSWORD, make_keys

pytestmark = pytest.mark.usefixtures("docker")


def test_from_a_registry_to_a_rising_reward(chosen: Workshop, built: oci.Image) -> None:
    before = runs(chosen)
    code, output = train(chosen)
    assert code == 0, output
    (run,) = [path for path in runs(chosen) if path not in before]
    rewards = [row["reward"] for row in rows(run)]
    assert len(rewards) == 40
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.3
    assert "is certified for this hardware" in output
    assert json.loads((run / "run.json").read_text())["image"].endswith(built.manifest)
    (kept,) = map(certificate.read, (run / "certificates").iterdir())
    assert kept.subject[0].digest == certificate.bare(built.manifest)
    assert (run / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert list(run.glob("events.out.tfevents.*"))
    assert (run / "checkpoint-40" / "trainer_state.json").is_file()
    owner = (chosen.root / "runs").stat()
    assert {(path.stat().st_uid, path.stat().st_gid) for path in run.rglob("*")} == {(owner.st_uid, owner.st_gid)}
    assert owner.st_uid != 0


CONFIG = """\
model_name_or_path: model
dataset_name: data
reward_funcs: [mine.length]
max_steps: 30
per_device_train_batch_size: 8
num_generations: 4
max_completion_length: 8
learning_rate: 1.0e-3
logging_steps: 1
bf16: false
"""
REWARD = """\
def length(completions, **_):
    return [float(len(text)) for text in completions]
"""


def test_a_config_of_ones_own_is_interrupted_and_resumed(chosen: Workshop, built_in_task: Path, tmp_path: Path) -> None:
    # The model and the data of the built-in task, in a folder of the user's, beside a reward function of the user's.
    own = tmp_path / "own"
    shutil.copytree(built_in_task, own)
    (own / "my.yaml").write_text(CONFIG)
    (own / "mine.py").write_text(REWARD)
    subprocess.run(["chmod", "-R", "a+rX", str(tmp_path)], check=True)
    with compose(chosen, "run", "--rm", "--name", "vetted-test-own", "train", "--config", "my.yaml", cwd=own) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("step 3/30"):
                subprocess.run(
                    ["docker", "kill", "--signal", "INT", "vetted-test-own"], capture_output=True, check=True
                )
        child.wait()
    assert child.returncode == 130
    run = runs(chosen)[-1]
    done = len(rows(run))
    assert 3 <= done < 30
    assert (run / f"checkpoint-{done}").is_dir()
    # A start that fails later is not the one to resume, and leaves nothing. Options hold until they are set again.
    code, output = train(chosen, "--config", "my.yaml", "--max_step", "9", cwd=own)
    assert code == 2
    assert "--max_step: there is no option max_step" in output
    assert "did you mean max_steps?" in output
    assert runs(chosen)[-1] == run
    code, output = train(chosen, "--resume", "--max_steps", str(done + 2), cwd=own)
    assert code == 0, output
    assert [row["step"] for row in rows(run)] == list(range(1, done + 3))
    assert f"from checkpoint-{done}" in output
    assert yaml.safe_load((run / "config.yaml").read_text())["max_steps"] == done + 2
    assert len(json.loads((run / "run.json").read_text())["commands"]) == 2


@pytest.mark.parametrize(
    ("mode", "what", "then"),
    [
        (0o755, "other.yaml is not there", "next: name the file relative to that folder"),
        (0o700, "other.yaml cannot be read: Permission denied", "next: chmod -R a+rX on that folder"),
    ],
)
def test_a_config_that_cannot_be_had_is_said_and_leaves_nothing(
    chosen: Workshop, tmp_path: Path, mode: int, what: str, then: str
) -> None:
    before = runs(chosen)
    tmp_path.chmod(mode)
    code, output = train(chosen, "--config", "other.yaml", cwd=tmp_path)
    assert code == 2
    assert what in output
    assert then in output
    assert runs(chosen) == before


def test_a_folder_that_was_carried_trains_without_a_network_and_without_this_project(
    workshop: Workshop, built: oci.Image, certified: certificate.Statement, tmp_path: Path
) -> None:
    assert certified.predicate.result == "PASSED"
    keys, carried = make_keys(tmp_path / "keys"), tmp_path / "carried"
    done = workshop.vetted(
        "bundle", STACK, "--image", "--key", str(keys.private), "--output", str(carried), COSIGN_PASSWORD=PASSWORD
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reference = target.reference(workshop.project, workshop.lock)
    subprocess.run(["docker", "image", "rm", "--force", reference], capture_output=True, check=True)
    try:
        off = ["unshare", "--net"] if os.geteuid() == 0 else []
        subprocess.run([*off, "sh", str(carried / "load")], capture_output=True, check=True)
        ran = subprocess.run(
            [*off, "docker", "compose", "run", "--rm", "train", "--max_steps", "3"],
            cwd=carried, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        assert "is certified for this hardware" in ran.stderr
        (run,) = [path for path in (carried / "runs").iterdir() if not path.name.startswith(".")]
        assert len(rows(run)) == 3
        assert json.loads((run / "run.json").read_text())["image"].endswith(built.manifest)
    finally:
        subprocess.run(["docker", "image", "rm", "--force", reference], capture_output=True, check=False)
