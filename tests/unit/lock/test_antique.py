"""The antique guard: by dates where the index has them, else by releases; and builds of ancient releases."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from builder.base import errors
from builder.lock import antique, extension, lockfile
from builder.lock.antique import Behind
from builder.lock.lockfile import Entry
from tests.conftest import TINY, Small, make_wheel
from tests.localhost import Response, Server
from tests.unit.conftest import Command


class Index(Server):
    """An index that says when its files were uploaded."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.days = folder, dict[str, str]()
        folder.mkdir()
        super().__init__()

    def respond(self, path: str, _headers: Mapping[str, str]) -> Response:
        *_, kind, name = path.split("/")
        file = self.folder / name
        body = file.read_bytes() if kind == "files" and file.is_file() else self.listing(name)
        return Response(200 if body else 404, body, {"Content-Type": "application/vnd.pypi.simple.v1+json"})

    def listing(self, name: str) -> bytes:
        files = [
            {
                "filename": path.name, "url": f"/files/{path.name}", "upload-time": f"{self.days[path.name]}T00:00:00Z",
                "hashes": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
            }
            for path in sorted(self.folder.glob(f"{name.replace('-', '_')}-*.whl"))
        ]  # fmt: skip
        versions = [str(file["filename"]).split("-")[1] for file in files]
        meta = {"api-version": "1.1"}
        return json.dumps({"meta": meta, "name": name, "files": files, "versions": versions}).encode() if files else b""

    def offer(self, name: str, releases: Mapping[str, str], *requires: str) -> None:
        """Releases of a distribution: version -> day."""
        for version, day in releases.items():
            wheel, _ = make_wheel(self.folder, name, version, {}, requires)
            self.days[wheel.name] = day


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("UV_OFFLINE")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    index = Index(tmp_path / "index")
    index.offer("tiny-lib", {"2.0": "2026-01-01"})
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{index.root}/simple")
    yield index
    index.close()


def behind(small: Small, *lines: str) -> list[Behind]:
    requirements = {lockfile.normalise(line.partition("<")[0]): line for line in lines}
    scratch = small.scratch()
    return antique.behind(small.lock, requirements, extension.solve(small.lock, requirements, scratch), scratch)


def test_a_release_that_was_old_half_a_year_before_the_newest_is_far_behind(wheels: Small, index: Index) -> None:
    index.offer("extra", {"1.0": "2024-01-01", "1.1": "2024-02-01"})
    index.offer("extra", {"2.0": "2026-03-01", "2.1": "2026-10-01"}, "tiny-lib>=2")
    (old,) = behind(wheels, "extra")
    assert (old.version, old.newest, old.far) == ("1.1", "2.1", True)
    assert old.conflict and old.conflict.pins == ("tiny-lib 1.0",)


def test_many_releases_within_weeks_are_not_far(wheels: Small, index: Index) -> None:
    index.offer("extra", {"1.0": "2026-09-01"})
    index.offer("extra", {f"1.{number}": f"2026-10-{number:02}" for number in range(1, 20)}, "tiny-lib>=2")
    (old,) = behind(wheels, "extra")
    assert (old.version, old.newest, old.far) == ("1.0", "1.19", False)


def test_the_last_but_one_of_a_project_that_sleeps_is_not_far(wheels: Small, index: Index) -> None:
    index.offer("extra", {"1.0": "2019-01-01"})
    index.offer("extra", {"1.1": "2026-10-01"}, "tiny-lib>=2")
    assert [old.far for old in behind(wheels, "extra")] == [False]


def test_the_newest_is_that_which_the_requirement_allows(wheels: Small, index: Index) -> None:
    index.offer("extra", {"1.0": "2019-01-01", "2.0": "2026-10-01"})
    assert behind(wheels, "extra<2") == []


def test_a_newest_release_that_nobody_can_install_does_not_count(wheels: Small, index: Index) -> None:
    index.offer("extra", {"1.0": "2019-01-01", "2.0": "2026-09-01"})
    index.offer("extra", {"2.1": "2026-10-01"}, "never-published")
    assert behind(wheels, "extra") == []


def test_a_pin_that_could_stay_is_not_in_the_way(wheels: Small) -> None:
    """Measured: of mlflow, certifi and python-dateutil were named, because uv also moves what the newest needs."""
    make_wheel(wheels.wheelhouse, "other", "1.0", {})
    make_wheel(wheels.wheelhouse, "other", "2.0", {})
    make_wheel(wheels.wheelhouse, "tiny-lib", "1.5", {})
    make_wheel(wheels.wheelhouse, "tiny-lib", "2.0", {}, ["other>=2"])
    make_wheel(wheels.wheelhouse, "extra", "1.0", {}, ["tiny-lib>1", "other"])
    parent = dataclasses.replace(wheels.lock, python=(*wheels.lock.python, Entry("other", "1.0", "e" * 64)))
    clash = extension.conflict(parent, {"extra": "extra"}, wheels.scratch())
    assert clash and clash.pins == ("tiny-lib 1.0",)


def test_all_pins_that_are_in_the_way_are_named(wheels: Small) -> None:
    for name in ("tiny-lib", "other"):
        make_wheel(wheels.wheelhouse, name, "2.0", {})
    make_wheel(wheels.wheelhouse, "other", "1.0", {})
    make_wheel(wheels.wheelhouse, "extra", "1.0", {}, ["tiny-lib>1", "other>1"])
    parent = dataclasses.replace(wheels.lock, python=(*wheels.lock.python, Entry("other", "1.0", "e" * 64)))
    clash = extension.conflict(parent, {"extra": "extra"}, wheels.scratch())
    assert clash and clash.pins == ("other 1.0", "tiny-lib 1.0")


def broken(folder: Path, name: str, version: str) -> None:
    """A source distribution from long ago, whose setup.py does not run any more."""
    with tarfile.open(folder / f"{name}-{version}.tar.gz", "w:gz") as archive:
        backend = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        for file, text in {"pyproject.toml": backend, "backend.py": "raise SystemExit('print x')\n"}.items():
            member = tarfile.TarInfo(f"{name}-{version}/{file}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))


def test_an_ancient_release_that_no_longer_builds_is_passed_over(wheels: Small) -> None:
    """Measured: with a lock as constraints, swanlab ended in a build of botocore 0.15."""
    make_wheel(wheels.wheelhouse, "extra", "2.0", {}, ["middle"])
    make_wheel(wheels.wheelhouse, "middle", "2.0", {}, ["tiny-lib>=2"])
    make_wheel(wheels.wheelhouse, "tiny-lib", "2.0", {})
    broken(wheels.wheelhouse, "middle", "0.1")
    with pytest.raises(errors.BadInputError, match=r"in the way: tiny-lib 1\.0 of tiny") as caught:
        behind(wheels, "extra")
    assert "print x" not in caught.value.what
    make_wheel(wheels.wheelhouse, "middle", "0.2", {})
    assert behind(wheels, "extra") == []


def test_a_package_without_a_wheel_is_taken_in_its_newest_release(wheels: Small, command: Command) -> None:
    make_wheel(wheels.wheelhouse, "extra", "1.0", {})
    with tarfile.open(wheels.wheelhouse / "extra-2.0.tar.gz", "w:gz") as archive:
        for file, text in {
            "PKG-INFO": "Metadata-Version: 2.2\nName: extra\nVersion: 2.0\n",
            "pyproject.toml": '[project]\nname = "extra"\nversion = "2.0"\n',
        }.items():
            member = tarfile.TarInfo(f"extra-2.0/{file}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    (wheels.root / "mine.txt").write_text("extra\n")
    make_wheel(wheels.wheelhouse, "setuptools", "80.0", {})
    answer = command(wheels.root, "extend", TINY, "mine.txt", "--name", "mine")
    assert answer.code == 0, answer.err
    assert "extra 2.0, built from source in the image" in answer.out
    lock = lockfile.load(wheels.project, "mine")
    assert (lock.versions["extra"], lock.own.source) == ("2.0", ("extra",))
