"""The bake file: what BuildKit is told of every image, and nothing that a stack's name could break."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from builder.base import errors
from builder.image import bake, build, buildx, daemon, rootfs, target
from tests.conftest import TINY, Small
from tests.unit.conftest import Command


@pytest.fixture
def without_debian(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The root filesystem takes mmdebstrap and a mirror; here it is an empty file."""
    (tmp_path / "rootfs.tar").touch()
    monkeypatch.setattr(rootfs, "make", lambda *_, **__: tmp_path / "rootfs.tar")


@pytest.mark.usefixtures("without_debian")
def test_the_file_names_all_that_a_build_of_one_image_is_told(wheels: Small) -> None:
    small = wheels
    path = bake.prepare(small.project, [small.lock], small.scratch(), lambda _: None)
    assert path == small.project.state / "bake" / "docker-bake.json"
    document = json.loads(path.read_text())
    assert document["group"] == {"default": {"targets": [bake.name(small.lock)]}}
    (options,) = document["target"].values()
    own = path.parent / TINY
    assert options["context"] == str(own / "context")
    assert options["contexts"] == {"uv": str(own / "context/uv"), "wheels": str(own / "context/wheels")}
    assert options["dockerfile"] == str(small.project.dockerfile(TINY))
    assert options["args"] == {"SOURCE_DATE_EPOCH": str(small.lock.epoch)}
    assert options["tags"] == [target.reference(small.project, small.lock)]
    assert options["attest"] == ["type=provenance,disabled=true", "type=sbom,disabled=true"]
    (output,) = options["output"]
    assert output.startswith(f"type=oci,tar=false,dest={own / target.LAYOUT},compression=zstd,")
    for folder in (options["context"], *options["contexts"].values()):
        assert Path(folder).is_dir()


@pytest.mark.usefixtures("without_debian")
def test_what_an_earlier_file_named_is_gone(wheels: Small) -> None:
    small = wheels
    bake.folder(small.project).joinpath("other").mkdir(parents=True)
    bake.prepare(small.project, [small.lock], small.scratch(), lambda _: None)
    assert sorted(path.name for path in bake.folder(small.project).iterdir()) == [bake.FILE, TINY]


def test_a_dockerfile_edited_by_hand_is_in_no_bake_file(small: Small) -> None:
    path = small.project.dockerfile(TINY)
    path.write_text(path.read_text() + "RUN true\n")
    with pytest.raises(errors.VettedError, match="is not what its lock renders to"):
        bake.prepare(small.project, [small.lock], small.scratch(), lambda _: None)
    assert not bake.folder(small.project).exists()


CACHE = "registry.example.org/team/layers"


@pytest.mark.usefixtures("without_debian")
def test_layers_are_shared_by_a_repository(wheels: Small) -> None:
    path = bake.prepare(wheels.project, [wheels.lock], wheels.scratch(), lambda _: None, CACHE)
    (options,) = json.loads(path.read_text())["target"].values()
    assert options["cache-from"] == [f"type=registry,ref={CACHE}:cache-{TINY}"]
    (caching,) = options["cache-to"]
    assert caching.startswith(f"type=registry,ref={CACHE}:cache-{TINY},mode=max,")
    # Compressed as the image is: a layer keeps the bytes that it was first compressed to.
    compression = options["output"][0].partition("compression=")[2]
    assert caching.partition("compression=")[2] == compression and "zstd" in compression


def test_builders_share_the_stacks(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Sequence[str]] = []
    names: list[str | None] = []

    def docker(name: str | None = None) -> daemon.Docker:
        names.append(name)
        return daemon.Docker("26", f"of {name}", "6")

    monkeypatch.setattr(buildx, "run", lambda _, argv, *__, **___: calls.append(argv))
    monkeypatch.setattr(daemon, "docker", docker)
    monkeypatch.setattr(
        daemon, "chosen", lambda name: (("--context", "one"), ()) if name == "one" else ((), ("--builder", name))
    )
    monkeypatch.setattr(build, "keep", lambda _, lock, __, engine, ___: (lock.name, engine.buildkit))
    bake.folder(small.project).mkdir(parents=True)
    locks = [dataclasses.replace(small.lock, name=name) for name in ("a", "b", "c")]
    path = bake.folder(small.project) / bake.FILE
    built: Any = bake.run(small.project, locks, path, small.scratch(), lambda _: None, ["one", "two", "one"])
    begins = sorted([list(argv[1 : argv.index("--progress=rawjson")]), list(argv[-2:])] for argv in calls)
    assert begins == [
        [["--context", "one", "buildx", "bake"], ["a", "c"]],
        [["buildx", "bake", "--builder", "two"], [str(path), "b"]],
    ]
    assert built == {"a": ("a", "of one"), "b": ("b", "of two"), "c": ("c", "of one")}
    assert list(built) == ["a", "b", "c"] and names == ["one", "two"]


def test_without_a_builder_the_current_one_builds(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Sequence[str]] = []
    monkeypatch.setattr(buildx, "run", lambda _, argv, *__, **___: calls.append(argv))
    monkeypatch.setattr(daemon, "docker", lambda *_: daemon.Docker("26", "1", "6"))
    monkeypatch.setattr(build, "keep", lambda *_: None)
    bake.folder(small.project).mkdir(parents=True)
    bake.run(small.project, [small.lock], bake.folder(small.project) / bake.FILE, small.scratch(), lambda _: None)
    (argv,) = calls
    assert "--builder" not in argv and argv[-1] == bake.name(small.lock)


@pytest.mark.parametrize("cache", ["layers", "example.org/a,dest=/etc", "example.org/a:tag", "-x"])
def test_a_cache_that_is_no_repository_is_refused(command: Command, small: Small, cache: str) -> None:
    answer = command(small.root, "bake", TINY, "--prepare", f"--cache={cache}")
    assert answer.code == 2
    assert "--cache" in answer.err and "is not HOST/PATH" in answer.err
