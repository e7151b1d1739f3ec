"""Training with `docker compose` in the image of test_docker.py: published, pulled and carried, then gone from here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.certify import certificate
from builder.image import oci, target
from tests.engine.conftest import STACK, Workshop
from tests.registry.conftest import PASSWORD, make_keys
from tests.registry.server import serving

pytestmark = pytest.mark.usefixtures("docker")


@pytest.fixture(scope="session")
def chosen(
    workshop: Workshop, built: oci.Image, certified: certificate.Statement, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workshop]:
    """The certified image: published, chosen from the registry, and gone from this machine."""
    assert certified.predicate.result == "PASSED"
    folder = tmp_path_factory.mktemp("registry")
    keys = make_keys(folder / "keys")
    with serving(folder / "store") as host:
        registry = ("--registry", f"{host}/images")
        done = workshop.vetted("publish", STACK, *registry, "--key", str(keys.private), COSIGN_PASSWORD=PASSWORD)
        assert done.returncode == 0, done.stdout + done.stderr
        images = subprocess.run(
            ["docker", "images", "-q", f"vetted/{STACK}"], capture_output=True, text=True, check=True
        )
        subprocess.run(["docker", "image", "rm", "--force", *images.stdout.split()], capture_output=True, check=True)
        answer = workshop.json("use", STACK, *registry, "--key", str(keys.public))
        assert answer["image"] == f"{host}/images@{built.manifest}"
        yield workshop
        subprocess.run(["docker", "image", "rm", "--force", answer["image"]], capture_output=True, check=False)


def compose(shop: Workshop, *argv: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    """`docker compose` of the workshop, typed in another folder."""
    where = cwd or shop.root
    return subprocess.Popen(
        ["docker", "compose", "--file", str(shop.root / "compose.yaml"), *argv],
        cwd=where, env={**os.environ, "PWD": str(where)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def train(shop: Workshop, *argv: str, cwd: Path | None = None) -> tuple[int, str]:
    with compose(shop, "run", "--rm", "train", *argv, cwd=cwd) as child:
        output, _ = child.communicate()
    return child.returncode, output


def runs(shop: Workshop) -> list[Path]:
    return sorted(path for path in (shop.root / "runs").iterdir() if path.is_dir())


def rows(run: Path) -> list[dict[str, float]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if "reward" in row]


def test_from_a_registry_to_a_rising_reward(chosen: Workshop, built: oci.Image) -> None:
    before = runs(chosen)
    code, output = train(chosen)
    assert code == 0, output
    (run,) = [path for path in runs(chosen) if path not in before]
    rewards = [row["reward"] for row in rows(run)]
    assert len(rewards) == 40
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.3
    assert "is certified for this hardware" in output
    assert json.loads((run / "image.json").read_text())["image"].endswith(built.manifest)
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


def test_a_config_of_ones_own_is_interrupted_and_resumed(chosen: Workshop, tmp_path: Path) -> None:
    # The model and the data of the built-in task, in a folder of the user's, beside a reward function of the user's.
    code, output = train(chosen, "--max_steps", "1")
    assert code == 0, output
    task = runs(chosen)[-1] / "task"
    own = tmp_path / "own"
    shutil.copytree(task, own)
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
    code, output = train(chosen, "--resume", "--max_steps", str(done + 2), cwd=own)
    assert code == 0, output
    assert f"from checkpoint-{done}" in output
    assert [row["step"] for row in rows(run)] == list(range(1, done + 3))


def test_two_runs_at_once_have_a_folder_each(chosen: Workshop) -> None:
    before = runs(chosen)
    both = [compose(chosen, "run", "--rm", "train", "--max_steps", "1") for _ in range(2)]
    output = [child.communicate()[0] for child in both]
    assert [child.returncode for child in both] == [0, 0], output
    assert len(runs(chosen)) == len(before) + 2


@pytest.mark.parametrize(
    ("mode", "what", "then"),
    [
        (0o755, "other.yaml is not there", "next: name the config relative to that folder"),
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
        (run,) = [path for path in (carried / "runs").iterdir() if path.is_dir()]
        assert len(rows(run)) == 3
        assert json.loads((run / "image.json").read_text())["image"].endswith(built.manifest)
    finally:
        subprocess.run(["docker", "image", "rm", "--force", reference], capture_output=True, check=False)
