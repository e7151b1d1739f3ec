"""A workshop: a copy of the project in which real stacks are locked, built and certified."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from filelock import FileLock
from pip._internal.models.index import PyPI

from builder.base import errors, machine, project
from builder.base.project import Project
from builder.certify import certificate, hostenv
from builder.image import build, daemon, oci, rootfs, target
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from tests import parts
from tests.engine import debian_locks, hosted
from tests.registry.conftest import PASSWORD, make_keys
from tests.registry.server import serving

ROOT = Path(__file__).parents[2]
STACK = "trl1.16-cpu"
# What has nothing to ask without a GPU. Anything else that were not run would be a hole in the certificate.
GPU_ONLY = {"cublas-loaded", "vllm-device", "vllm-sleep-mode"}
DOCKER = ("certify", STACK, "--engine", "docker")
PLANTED = "planted-secret"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.engine)


@dataclass(frozen=True)
class Workshop:
    root: Path

    @property
    def project(self) -> project.Project:
        return project.Project(self.root)

    @property
    def lock(self) -> Lock:
        return lockfile.load(self.project, STACK)

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "builder", *argv],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def vetted(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        with self.start(*argv, **env) as child:
            stdout, stderr = child.communicate()
        assert "Traceback" not in stderr
        return subprocess.CompletedProcess(argv, child.returncode, stdout, stderr)

    def json(self, *argv: str, code: int = 0, env: Mapping[str, str] | None = None) -> Any:
        done = self.vetted(*argv, "--json", **(env or {}))
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    def certificate(self, engine_name: str) -> Path:
        return self.root / "lockfiles" / STACK / "certificates" / f"cpu-{engine_name}.json"

    def keep_probes(self, *stems: str) -> None:
        """Delete all other probes: for what a run does, not for what it finds."""
        for file in self.project.smoke.joinpath("probes").glob("*.py"):
            if file.stem not in stems:
                file.unlink()

    def partial_files(self) -> list[Path]:
        """What an interrupted command must not leave: half-written files, and scratch that nobody owns."""
        beside = [path for path in self.root.rglob("*.partial") if "site-packages" not in path.parts]
        scratch = self.root / ".vetted" / "tmp" / STACK
        return beside + (list(scratch.iterdir()) if scratch.exists() else [])


def copy_of_project(target: Path) -> Workshop:
    for folder in ("advisories", "lockfiles", "images", "runtime", "smoke", "docs"):
        source = _locked.get(folder, ROOT / folder)
        shutil.copytree(source, target / folder, ignore=shutil.ignore_patterns("__pycache__", "certificates"))
    for file in ("README.md", *(path.name for path in ROOT.glob("compose*.yaml"))):
        shutil.copy(ROOT / file, target)
    return Workshop(target)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """What a test starts has one thread for each process."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in hosted.ONE_THREAD.items():
            monkeypatch.setenv(name, value)
        yield


# The folders of stacks whose Debian packages this machine can get, where these are not the project's own.
_locked: dict[str, Path] = {}


@pytest.fixture(scope="session", autouse=True)
def locks(shared: Path) -> None:
    """Debian's mirrors delete what they replace: without a snapshot of them, tests lock those packages anew."""
    root = shared / "locks"
    with FileLock(root.with_suffix(".lock")):
        if not root.exists():
            partial = root.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)  # of a worker that was killed
            copy_of_project(partial)
            debian_locks.renew(Project(partial), (STACK, "trl1.16-cu130"))
            partial.rename(root)
    if debian_locks.differ(root, ROOT):
        _locked.update({folder: root / folder for folder in ("lockfiles", "images")})


ENVIRONMENT, DOWNLOADS = ("host",), ("debs", "rootfs", "wheels")


def link_state(source: Workshop, target: Workshop, folders: Sequence[str] = DOWNLOADS) -> None:
    """Give a project the downloads of another one, or other folders, as hard links."""
    for folder in folders:
        if (source.project.state / folder).exists():
            shutil.copytree(
                source.project.state / folder, target.project.state / folder, symlinks=True, copy_function=os.link
            )


@pytest.fixture(scope="session")
def depot(shared: Path) -> Workshop:
    """The stack's environment and its root filesystem, made once for all workers of a run."""
    root = shared / "depot"
    with FileLock(root.with_suffix(".lock")):
        if not root.exists():
            workshop = copy_of_project(root)
            with workshop.project.holding(STACK) as scratch:
                hostenv.prepare(workshop.project, workshop.lock, scratch, lambda _: None)
                # Where it cannot be made, the tests that need it say why.
                with suppress(errors.VettedError):
                    rootfs.make(workshop.project, workshop.lock, scratch)
    return Workshop(root)


@pytest.fixture(scope="session")
def workshop(depot: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """One for the whole session of a worker: what a test builds, the next one finds."""
    root = tmp_path_factory.mktemp("workshop")
    workshop = copy_of_project(root)
    link_state(depot, workshop)
    yield workshop
    shutil.rmtree(root)


@pytest.fixture(scope="session")
def environment(depot: Workshop) -> Path:
    """The stack's environment on the host. All workers use it, and nobody changes it."""
    return hostenv.path(depot.project, depot.lock)


@pytest.fixture(scope="session")
def python(environment: Path) -> Path:
    """Python in the stack's environment on the host."""
    return environment / "bin" / "python"


@pytest.fixture(scope="session")
def built_in_task(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its model and its data."""
    return hosted.make_task(python, tmp_path_factory.mktemp("built-in"))


@pytest.fixture
def sibling(depot: Workshop, tmp_path: Path) -> Iterator[Workshop]:
    """A second project with the same downloads, to be spoiled by one test."""
    spoiled = copy_of_project(tmp_path / "project")
    link_state(depot, spoiled)
    yield spoiled
    shutil.rmtree(spoiled.root)


@pytest.fixture(scope="session")
def docker() -> Iterator[daemon.Docker]:
    yield parts.docker()
    images = subprocess.run(
        ["docker", "images", "--quiet", f"vetted/{STACK}"], capture_output=True, text=True, check=True
    )
    subprocess.run(["docker", "image", "rm", "--force", *images.stdout.split()], capture_output=True, check=False)


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


@pytest.fixture(scope="session")
def registry(
    workshop: Workshop, certified: certificate.Statement, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, ...]]:
    """Options that name the registry where the certified image was published, and its key; it is gone from Docker."""
    assert certified.predicate.result == "PASSED"
    folder = tmp_path_factory.mktemp("registry")
    keys = make_keys(folder / "keys")
    with serving(folder / "store") as host:
        where = ("--registry", f"{host}/images")
        done = workshop.vetted("publish", STACK, *where, "--key", str(keys.private), COSIGN_PASSWORD=PASSWORD)
        assert done.returncode == 0, done.stdout + done.stderr
        images = subprocess.run(
            ["docker", "images", "-q", f"vetted/{STACK}"], capture_output=True, text=True, check=True
        )
        subprocess.run(["docker", "image", "rm", "--force", *images.stdout.split()], capture_output=True, check=True)
        yield (*where, "--key", str(keys.public))


@pytest.fixture(scope="session")
def chosen(workshop: Workshop, built: oci.Image, registry: tuple[str, ...]) -> Iterator[Workshop]:
    """The published image, chosen from the registry."""
    answer = workshop.json("use", STACK, *registry)
    assert answer["image"].endswith(f"/images@{built.manifest}")
    yield workshop
    subprocess.run(["docker", "image", "rm", "--force", answer["image"]], capture_output=True, check=False)
