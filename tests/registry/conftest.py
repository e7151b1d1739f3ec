"""A real registry on loopback, real keys, and a small stack whose image is a few kilobytes."""

from __future__ import annotations

import datetime
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from builder.base.project import sha256
from builder.certify import certificate
from builder.image import build, oci, target
from builder.image.build import Built
from builder.publish import registry
from builder.publish.reference import Repository, parse_repository
from tests import layouts, parts
from tests.commands import Answer
from tests.conftest import TINY, Small
from tests.registry.server import serving
from tests.unit.conftest import Command
from tests.unit.conftest import command as command

TOOLS = ("cosign", "oras", "skopeo", "docker-registry")
PASSWORD = "correct horse"
METADATA = "Metadata-Version: 2.4\nName: tiny-lib\nVersion: 1.0\nLicense-Expression: Apache-2.0\n"
COPYRIGHT = (
    "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nLicense: GPL-2+\n text\n"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session", autouse=True)
def tools() -> None:
    parts.programs(*TOOLS)


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody's credentials, and no proxy between this machine and itself."""
    for name in os.environ:
        if name.startswith(("VETTED_", "REGISTRY_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("COSIGN_PASSWORD", PASSWORD)


@dataclass(frozen=True)
class Keys:
    private: Path
    public: Path


def make_keys(folder: Path) -> Keys:
    folder.mkdir(parents=True)
    subprocess.run(
        ["cosign", "generate-key-pair"], cwd=folder, env={**os.environ, "COSIGN_PASSWORD": PASSWORD},
        check=True, capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Keys(folder / "cosign.key", folder / "cosign.pub")


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys") / "ours")


@pytest.fixture(scope="session")
def other_keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys") / "theirs")


@pytest.fixture(scope="session")
def shared_host(tmp_path_factory: pytest.TempPathFactory, tools: None) -> Iterator[str]:  # noqa: ARG001
    with serving(tmp_path_factory.mktemp("registry") / "store") as host:
        yield host


@pytest.fixture
def repository(shared_host: str, request: pytest.FixtureRequest) -> Repository:
    """A place of its own for every test, in one registry."""
    name = sha256(request.node.nodeid.encode()).removeprefix("sha256:")[:12]
    return parse_repository(f"{shared_host}/{name}/images", insecure=False)


ADVISORY = """\
id = "VETTED-9001"
summary = "Tiny 1.0 greets nobody"
severity = "silent-wrong"
published = {published}
details = "It greets nobody."
probes = ["{probe}"]
references = [{{ type = "REPORT", url = "https://example.org/1" }}]

[[affected]]
packages = {{ tiny-lib = "{versions}" }}
{context}
[[fix]]
packages = {{ tiny-lib = ">=2" }}

[evidence]
kind = "executed"
says = "it was run"
"""


def advise(
    small: Small, published: datetime.date, *, versions: str = "<2", probe: str = "alpha", context: str = ""
) -> None:
    """Publish an advisory about the small stack."""
    small.project.advisories.mkdir(exist_ok=True)
    text = ADVISORY.format(published=published, versions=versions, probe=probe, context=context)
    (small.project.advisories / "VETTED-9001.toml").write_text(text)


def publish(
    command: Command, stack: Stack, repository: Repository | str, keys: Keys, *more: str, name: str = TINY
) -> Answer:
    """`vetted publish`."""
    return command(stack.root, "publish", name, "--registry", str(repository), "--key", str(keys.private), *more)


def verify(command: Command, stack: Stack, reference: str, keys: Keys, *more: str) -> Answer:
    """`vetted verify`."""
    return command(stack.root, "verify", reference, "--key", str(keys.public), *more)


def tags(repository: Repository) -> dict[str, str | None]:
    """Every tag there, except those that lead from an image to what is attached to it."""
    listed = subprocess.run(
        ["oras", "repo", "tags", "--plain-http", str(repository)], capture_output=True, text=True, check=False
    )
    names = [name for name in listed.stdout.split() if not name.startswith("sha256-")]
    return {name: registry.resolve(repository, name) for name in names}


def skopeo(source: str, target: str) -> None:
    """Copy an image past Vetted."""
    argv = ["skopeo", "copy", "--preserve-digests", "--src-tls-verify=false", "--dest-tls-verify=false", source, target]
    subprocess.run(argv, check=True, capture_output=True)


def dated() -> str:
    return f"{TINY}-{certificate.today():%Y%m%d}"


def rewritten(path: Path, change: Callable[[Any], None]) -> None:
    """Change the JSON of a file."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data, indent=2) + "\n")


def on_another_machine(path: Path) -> str:
    """Let a certificate say that it was earned on a larger machine."""
    hardware = "AMD EPYC 9754, 128 cores"

    def change(data: Any) -> None:
        (resource,) = [entry for entry in data["predicate"]["configuration"] if entry["name"] == "hardware"]
        resource["annotations"] = {"class": hardware, "cpu": "AMD EPYC 9754", "cores": 128}

    rewritten(path, change)
    return hardware


def make_image(small: Small, content: str = "content", metadata: str = METADATA) -> Built:
    """What a build leaves: the OCI layout of a small image, and its record."""
    lock, images = small.lock, small.project.state / "images"
    shutil.rmtree(images, ignore_errors=True)
    files: dict[str, str | Path] = {
        f"opt/venv/{lock.site_packages}/tiny_lib-1.0.dist-info/METADATA": metadata,
        "usr/share/doc/bsdutils/copyright": COPYRIGHT,
        "etc/content": content,
    }
    reference = target.reference(small.project, lock)
    image = image_of(images / TINY, [files], reference, build.own_labels(lock))
    build.put_record(small.project, lock, Built(image, reference, "v0", small.inputs), small.scratch())
    built = build.existing(small.project, lock)
    assert built is not None
    return built


def image_of(
    layout: Path,
    layers: Sequence[Mapping[str, str | Path]],
    name: str = "it:1",
    labels: Mapping[str, str] | None = None,
) -> oci.Image:
    """An OCI layout of an image with these files, as BuildKit writes one; a path is a link."""
    labelled = {"Labels": {"dev.vetted.stack": TINY, **(labels or {})}}
    config = {"architecture": "amd64", "os": "linux", "config": labelled}
    return layouts.write(layout, [tar(files) for files in layers], config, name=name, zstd=True)


def tar(files: Mapping[str, str | Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, Path):
                member.type, member.linkname = tarfile.SYMTYPE, str(content)
                archive.addfile(member)
            else:
                member.size = len(content.encode())
                archive.addfile(member, io.BytesIO(content.encode()))
    return buffer.getvalue()


@dataclass(frozen=True)
class Stack:
    """The small stack with its image."""

    small: Small
    built: Built

    @property
    def image(self) -> str:
        return self.built.image.manifest

    @property
    def root(self) -> Path:
        return self.small.root

    def another(self, content: str) -> Stack:
        """The stack when its image is built anew, with another content, and certified."""
        stack = Stack(self.small, make_image(self.small, content))
        stack.small.issue("docker", subject=stack.image)
        return stack


@pytest.fixture
def built(small: Small) -> Stack:
    """Built, and not certified."""
    return Stack(small, make_image(small))


@pytest.fixture
def certified(built: Stack) -> Stack:
    built.small.issue("docker", subject=built.image)
    return built


@pytest.fixture
def published(command: Command, certified: Stack, repository: Repository, keys: Keys) -> Stack:
    done = publish(command, certified, repository, keys)
    assert done.code == 0, done.err
    return certified
