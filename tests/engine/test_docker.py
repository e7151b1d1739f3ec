"""The docker engine: the image built bit for bit, the suite inside it, hardened, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
import zstandard
from pip._internal.models.index import PyPI

from builder.base import machine, project, sources
from builder.certify import certificate, engine, suite
from builder.image import build, context, daemon, oci, target
from tests.engine.conftest import GPU_ONLY, ROOT, STACK, Workshop, containers, killed_while, succeeds
from tests.registry.conftest import PASSWORD, make_keys
from tests.registry.server import serving

pytestmark = pytest.mark.usefixtures("docker")
DOCKER = ("certify", STACK, "--engine", "docker")


PLANTED = "planted-secret"


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a machine keeps to itself: credentials of its index, its certificate authority, its tokens."""
    index = urlsplit(machine.index() or PyPI.simple_url)
    authority = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.write_text(
        (machine.ca_bundle() or Path("/etc/ssl/certs/ca-certificates.crt")).read_text() + f"# {PLANTED}\n"
    )
    return {
        "UV_DEFAULT_INDEX": urlunsplit(index._replace(netloc=f"somebody:{PLANTED}@{index.netloc.rpartition('@')[2]}")),
        "SSL_CERT_FILE": str(authority),
        "HF_TOKEN": f"hf_{PLANTED}",
        "WANDB_API_KEY": PLANTED,
    }


@pytest.fixture(scope="session")
def built(workshop: Workshop, docker: daemon.Docker, planted: dict[str, str]) -> oci.Image:  # noqa: ARG001
    answer = workshop.json("build", STACK, env=planted)
    image = oci.read(Path(answer["layout"]))
    assert image.manifest == answer["manifest"]
    return image


@pytest.fixture(scope="session")
def certified(workshop: Workshop, built: oci.Image, planted: dict[str, str]) -> certificate.Statement:
    home, lock = workshop.project, workshop.lock
    inputs = target.inputs_of(home, lock, home.dockerfile(lock.name).read_text())
    assert build.existing(home, lock) == build.Built(
        built, target.reference(home, lock), daemon.docker().buildkit, inputs
    )
    done = workshop.vetted(*DOCKER, **planted)
    assert done.returncode == 0, done.stdout + done.stderr
    assert PLANTED not in done.stdout + done.stderr
    return certificate.read(workshop.certificate("docker"))


def test_the_subject_is_the_digest_that_docker_reports(
    workshop: Workshop, built: oci.Image, certified: certificate.Statement
) -> None:
    reference = target.reference(workshop.project, workshop.lock)
    reported = subprocess.run(
        ["docker", "image", "inspect", "--format", "{{.Id}}", reference], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert reported == built.manifest
    assert certified.subject[0].digest == certificate.bare(reported)
    assert certified.predicate.notRun.keys() == GPU_ONLY


def test_the_image_built_here_is_the_one_whose_certificate_is_committed(built: oci.Image) -> None:
    """On another machine, with another index, on another day."""
    committed = certificate.read(certificate.path(project.find(ROOT), STACK, "cpu", "docker"))
    assert committed.subject[0].digest == certificate.bare(built.manifest)


def test_no_secret_of_the_machine_is_in_what_leaves_it(
    workshop: Workshop, built: oci.Image, certified: certificate.Statement
) -> None:
    needle = PLANTED.encode()
    for path in (built.layout / "blobs").rglob("*"):
        if path.is_file():
            assert not holds(path, needle), path
    kept = [
        path for path in (workshop.root / ".vetted").rglob("*") if path.is_file() and path.stat().st_size < 10_000_000
    ]
    assert [path for path in kept if needle in path.read_bytes()] == []
    assert PLANTED not in certified.to_json()
    history = subprocess.run(
        ["docker", "image", "history", "--no-trunc", target.reference(workshop.project, workshop.lock)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "uv pip install" in history.stdout or "COPY" in history.stdout
    assert PLANTED not in history.stdout


def holds(blob: Path, needle: bytes) -> bool:
    """Is it in a file, or in what the file was compressed from?"""
    with blob.open("rb") as file:
        compressed = file.read(4) == b"\x28\xb5\x2f\xfd"
        file.seek(0)
        stream = zstandard.ZstdDecompressor().stream_reader(file) if compressed else file
        end = b""
        while chunk := stream.read(1 << 24):
            if needle in end + chunk:
                return True
            end = chunk[-len(needle) :]
    return False


def test_a_secret_would_be_found(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    text = b"x" * ((1 << 24) - 5) + PLANTED.encode() + b"y" * 100
    plain.write_bytes(text)
    packed.write_bytes(zstandard.ZstdCompressor().compress(text))
    assert holds(plain, PLANTED.encode())
    assert holds(packed, PLANTED.encode())
    assert not holds(plain, b"something else")


def test_the_same_key_again_starts_no_container(workshop: Workshop, certified: certificate.Statement) -> None:
    assert certified.predicate.result == "PASSED"
    begin = time.time()
    assert workshop.json(*DOCKER)["reused"] is True
    events = [
        "docker",
        "events",
        "--since",
        f"{begin:.3f}",
        "--until",
        f"{time.time():.3f}",
        "--filter",
        "event=create",
    ]
    assert subprocess.run(events, capture_output=True, text=True, check=True).stdout == ""
    assert containers() == []


def test_the_image_says_what_it_holds(workshop: Workshop, certified: certificate.Statement) -> None:
    assert certified.predicate.result == "PASSED"
    reference = target.reference(workshop.project, workshop.lock)
    said = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", reference, "cat", "/etc/vetted/stack.json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(said.stdout) == context.description(workshop.project, workshop.lock)


def test_no_file_of_the_image_is_younger_than_the_lock_says(
    workshop: Workshop, certified: certificate.Statement
) -> None:
    assert certified.predicate.result == "PASSED"

    def found(*condition: str) -> list[str]:
        argv = ["find", "/opt", "/usr", "/var", "/home", "/etc/vetted", *condition]
        reference = target.reference(workshop.project, workshop.lock)
        return subprocess.run(
            ["docker", "run", "--rm", "--network", "none", reference, *argv],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.splitlines()

    assert found("-newermt", f"@{workshop.lock.epoch}") == []
    assert len(found("!", "-newermt", f"@{workshop.lock.epoch}")) > 10_000


PRIVILEGES = """
\"\"\"What may a probe do?\"\"\"

from __future__ import annotations

import os
import pathlib
import socket

from smoke.probe import Bound, Probe, Reading

NAMES = ("uid", "gid", "capabilities", "no_new_privileges", "written", "interfaces", "supervisor_opened")
PROBE = Probe("it does not", tuple(Bound(name, "as is", headline=name == "uid") for name in NAMES), ())


def run(_):
    status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
    yield Reading("uid", os.getuid())
    yield Reading("gid", os.getgid())
    yield Reading("capabilities", int(status["CapEff"], 16))
    yield Reading("no_new_privileges", int(status["NoNewPrivs"]))
    yield Reading("written", attempt(lambda: pathlib.Path("/opt/venv/written").touch()))
    yield Reading("interfaces", len([name for _, name in socket.if_nameindex() if name != "lo"]))
    ways = [lambda: os.listdir("/proc/1/fd"), lambda: open("/proc/1/mem", "rb"), lambda: os.kill(1, 0)]
    yield Reading("supervisor_opened", sum(map(attempt, ways)))


def attempt(way):
    try:
        way()
    except OSError:
        return 0
    return 1
"""


def test_probes_run_without_privileges_and_cannot_reach_the_supervisor(
    workshop: Workshop, certified: certificate.Statement, tmp_path: Path
) -> None:
    assert certified.predicate.result == "PASSED"
    built = build.needed(workshop.project, workshop.lock)
    sources.copy(ROOT / "smoke", tmp_path)
    (tmp_path / "own").mkdir(mode=0o755)
    (tmp_path / "own" / "privileges.py").write_text(PRIVILEGES)
    tmp_path.chmod(0o755)
    loaded = daemon.load(built.image, built.reference)
    command = engine.in_image(tmp_path, "dev.vetted.run=test", loaded.reference, "3.11", "cpu", 2048)
    asked = suite.Request("cpu", {})
    runner = suite.Runner([*command, "--probes", "/vetted/own"])
    (tmp_path / "scratch").mkdir()
    (result,) = suite.run(runner, asked, tmp_path / "scratch", lambda _: None).results
    assert result.outcome == "passed", result.log_tail
    assert {one.name: one.value for one in result.measurements} == {
        "uid": 1000, "gid": 1000, "capabilities": 0, "no_new_privileges": 1, "written": 0, "interfaces": 0,
        "supervisor_opened": 0,
    }  # fmt: skip


def wait_for_container(seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not containers():
        assert time.monotonic() < deadline, "no container was started"
        time.sleep(0.1)


@pytest.mark.parametrize("moment", [0.0, 1.0, 5.0])
def test_a_killed_run_leaves_no_container(workshop: Workshop, certified: certificate.Statement, moment: float) -> None:
    with workshop.start(*DOCKER, "--force") as child:
        wait_for_container()
        time.sleep(moment)
        child.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while (left := containers()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []
    assert certificate.read(workshop.certificate("docker")) == certified


def test_build_survives_being_killed(workshop: Workshop, certified: certificate.Statement) -> None:
    record = workshop.root / ".vetted" / "images" / f"{STACK}.json"
    record.unlink()  # the image counts as not built
    shutil.rmtree(workshop.root / ".vetted" / "rootfs")
    for program in ("mmdebstrap", "buildx build"):
        killed_while(workshop, ("build", STACK), program)
        assert not record.exists()
    succeeds(workshop, ("build", STACK))
    assert certificate.bare(workshop.json("build", STACK)["manifest"]) == certified.subject[0].digest


# --- docker compose ------------------------------------------------------------------------------------------------


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
        found = subprocess.run(
            ["docker", "images", "-q", f"vetted/{STACK}"], capture_output=True, text=True, check=True
        )
        subprocess.run(["docker", "image", "rm", "--force", *found.stdout.split()], capture_output=True, check=True)
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
        said, _ = child.communicate()
    return child.returncode, said


def runs(shop: Workshop) -> list[Path]:
    return sorted(path for path in (shop.root / "runs").iterdir() if path.is_dir())


def rows(run: Path) -> list[dict[str, float]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if "reward" in row]


def test_from_a_registry_to_a_rising_reward(chosen: Workshop, built: oci.Image) -> None:
    before = runs(chosen)
    code, said = train(chosen)
    assert code == 0, said
    (run,) = [path for path in runs(chosen) if path not in before]
    rewards = [row["reward"] for row in rows(run)]
    assert len(rewards) == 40
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.3
    assert "is certified for this hardware" in said
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
    code, said = train(chosen, "--max_steps", "1")
    assert code == 0, said
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
    code, said = train(chosen, "--resume", "--max_steps", str(done + 2), cwd=own)
    assert code == 0, said
    assert f"from checkpoint-{done}" in said
    assert [row["step"] for row in rows(run)] == list(range(1, done + 3))


def test_two_runs_at_once_have_a_folder_each(chosen: Workshop) -> None:
    before = runs(chosen)
    both = [compose(chosen, "run", "--rm", "train", "--max_steps", "1") for _ in range(2)]
    said = [child.communicate()[0] for child in both]
    assert [child.returncode for child in both] == [0, 0], said
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
    code, said = train(chosen, "--config", "other.yaml", cwd=tmp_path)
    assert code == 2
    assert what in said
    assert then in said
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


def test_bake_makes_the_same_image_and_keeps_it_like_a_build(workshop: Workshop, built: oci.Image) -> None:
    shutil.rmtree(workshop.project.state / "images")
    assert workshop.json("bake", STACK)[STACK]["manifest"] == built.manifest
    kept = build.existing(workshop.project, workshop.lock)
    assert kept is not None and kept.image.manifest == built.manifest


def test_no_engine_is_said_with_how_to_get_one(workshop: Workshop) -> None:
    done = workshop.vetted(*DOCKER, "--force", DOCKER_HOST="unix:///nonexistent/docker.sock")
    assert done.returncode == 4
    assert "scripts/install-engine" in done.stderr


def test_without_an_engine_the_host_is_chosen_and_said(workshop: Workshop) -> None:
    done = workshop.vetted("certify", STACK, "--probe", "imports", DOCKER_HOST="unix:///nonexistent/docker.sock")
    assert done.returncode == 0
    assert "no Docker engine answers: certifying the lock on this host" in done.stderr
