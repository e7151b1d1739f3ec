"""A bundle: the same bytes every time, whole or not there, with every file that the tool needs."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from builder.base import errors
from builder.bundle import bundle, interpreter, present, routes
from builder.bundle.bundle import Request, project_files
from builder.bundle.selection import TOOL
from builder.bundle.unbundle.manifest import MANIFEST
from builder.image.build import Built
from builder.lock.lockfile import Entry, Lock
from tests import parts
from tests.conftest import PYTHON, ROOT, TINY, Small
from tests.unit.bundle.conftest import make
from tests.unit.bundle.test_layers import make_image, tar
from tests.unit.conftest import Command


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_input_gives_the_same_bytes_wherever_it_is_made(bare: Small, tmp_path: Path) -> None:
    first = make(bare, tmp_path / "first")
    moved = Small(shutil.copytree(bare.root, tmp_path / "moved"))
    for path in moved.root.rglob("*"):
        os.utime(path, (1, 1))
    shutil.rmtree(moved.project.state)
    second = make(moved, tmp_path / "second")
    assert content(first.folder) == content(second.folder)
    assert (first.digest, first.parts) == (second.digest, second.parts)
    assert first.parts > 1
    assert all(path.stat().st_size <= 100_000 for path in first.folder.glob("*.part*"))


def test_a_part_that_is_there_is_left_alone_and_one_of_an_earlier_bundle_goes(bare: Small, tmp_path: Path) -> None:
    out = tmp_path / "out"
    bundle = make(bare, out)
    before = content(out)
    first, second = sorted(out.glob("*.part*"))[:2]
    kept = first.stat().st_ino
    second.write_bytes(b"cut short")
    (out / f"{TINY}.part999").write_bytes(b"of an earlier bundle")
    (out / f".{TINY}.part003.partial").write_bytes(b"half")
    (out / MANIFEST).unlink()
    assert make(bare, out) == bundle
    assert content(out) == before
    assert first.stat().st_ino == kept


def test_a_download_is_kept_and_one_that_was_damaged_is_made_anew(bare: Small, tmp_path: Path) -> None:
    out = tmp_path / "out"
    bundle = make(bare, out)
    (kept,) = (bare.project.state / "wheels").rglob("*.whl")
    shutil.rmtree(bare.wheelhouse)
    assert make(bare, out) == bundle  # no index was asked, and no wheelhouse
    kept.write_bytes(b"damaged")
    with pytest.raises(errors.VettedError):
        make(bare, out)


def test_a_file_that_is_not_the_locked_one_is_a_network_error(bare: Small, tmp_path: Path) -> None:
    true = bare.lock.python[0].sha256
    false = f"{(int(true[0], 16) + 1) % 16:x}{true[1:]}"
    bare.edit("requirements.txt", true, false)
    with pytest.raises(errors.NetworkError, match=f"expected sha256:{false}\ngot      sha256:{true}"):
        make(bare, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_else_is_refused(bare: Small, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").touch()
    for output in (folder, folder / "thesis.txt"):
        with pytest.raises(errors.StorageError, match=r"something else|not a folder"):
            make(bare, output)
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["film.part001", ".film.part001.partial", "manifest.json", "run.pyz"])
def test_a_file_that_has_the_name_of_one_of_ours_stays(bare: Small, tmp_path: Path, name: str) -> None:
    for folder in (tmp_path / "mine", make(bare, tmp_path / "bundle").folder):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text('{"name": "mine"}')
        before = content(folder)
        with pytest.raises(errors.StorageError, match=name.replace(".", "[.]")):
            make(bare, folder)
        assert content(folder) == before


def test_a_part_that_is_a_link_is_not_replaced(bare: Small, tmp_path: Path) -> None:
    part = next(make(bare, tmp_path / "out").folder.glob("*.part001"))
    part.rename(tmp_path / "elsewhere")
    part.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.StorageError, match="something else"):
        make(bare, tmp_path / "out")
    assert part.is_symlink()


def test_a_bundle_of_a_stack_that_is_gone_is_replaced_by_its_list(bare: Small, tmp_path: Path) -> None:
    out = make(bare, tmp_path / "out").folder
    manifest = json.loads((out / MANIFEST).read_text())
    manifest["parts"].append({"name": "gone.part001", "size": 1, "sha256": "0" * 64})
    (out / MANIFEST).write_text(json.dumps(manifest))
    (out / "gone.part001").touch()
    make(bare, out)
    assert not (out / "gone.part001").exists()


def test_the_command_explains_itself(command: Command, small: Small) -> None:
    answer = command(small.root, "bundle", "--help")
    assert answer.code == 0
    for option in ("--output", "--part-size", "--have", "--python", "--route", "--json"):
        assert option in answer.out
    assert "run-bundle" not in command(small.root, "--help").out


def test_the_command_says_what_it_made(command: Command, bare: Small, tmp_path: Path) -> None:
    output = tmp_path / "out"
    argv = ("bundle", TINY, "--output", str(output), "--part-size", "100K", "--python", PYTHON)
    answer = command(bare.root, *argv)
    assert answer.code == 0
    assert f"{TINY}: " in answer.out and "parts" in answer.out
    assert f"python{PYTHON} out/run.pyz" in answer.out
    summary = command(bare.root, *argv, "--json").json
    assert summary["parts"] == len(list(output.glob("*.part*")))
    assert (summary["hollow"], summary["python"], summary["carried"]) == ([], PYTHON, False)


def test_a_python_that_the_verifier_does_not_run_on_is_refused(command: Command, small: Small, tmp_path: Path) -> None:
    answer = command(small.root, "bundle", TINY, "--output", str(tmp_path / "out"), "--python", "3.10")
    assert answer.code == 3
    assert "3.10" in answer.err
    assert command(small.root, "bundle", TINY, "--output", "out", "--python", "three").code == 2


def test_the_tool_brings_every_file_of_its_package_but_caches(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    names = {"__init__.py", "scripts/load.sh", "templates/a.md.j2", "data/a.toml", "data/plain"}
    for name in (*names, "__pycache__/a.cpython-311.pyc", "stray.pyc", ".editor.py", ".cache/a.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    monkeypatch.setattr("builder.bundle.bundle.TOOL", package)
    tree = project_files(small.project, small.lock)
    assert {name.removeprefix("builder/") for name in tree if name.startswith("builder/")} == names


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="asks git which files the package has; this is no clone")
def test_the_tool_brings_every_file_that_git_knows(small: Small) -> None:
    listed = subprocess.run([parts.git(), "ls-files", "builder"], cwd=ROOT, check=True, capture_output=True, text=True)
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert tracked and ROOT / "builder" == TOOL
    assert tracked <= project_files(small.project, small.lock).keys()


def test_the_tool_starts_with_what_a_bundle_carries_alone(small: Small, tmp_path: Path) -> None:
    for name, path in project_files(small.project, small.lock).items():
        (tmp_path / "alone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, tmp_path / "alone" / name)
    argv = [sys.executable, "-m", "builder", "run-bundle", "--help"]
    environ = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(argv, cwd=tmp_path / "alone", env=environ, capture_output=True, text=True)
    assert (result.returncode, "--host" in result.stdout) == (0, True), result.stderr


@pytest.mark.parametrize(
    ("size", "route", "chosen"),
    [(100, None, "image"), (3 << 20, None, "host"), (3 << 20, "image", "image"), (100, "host", "host")],
)
def test_the_smaller_route_is_taken_unless_one_is_asked_for(
    bare: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, route: str | None, chosen: str
) -> None:
    layer = tar(("large", random.Random(0).randbytes(size)))
    image = Built(make_image(tmp_path / "layout", (layer,)), "vetted/tiny:0", "0.1", "sha256:")
    monkeypatch.setattr(routes, "image", lambda *_, **__: image)
    monkeypatch.setattr(interpreter, "packages", lambda *_: {})
    wheel = bare.wheelhouse / "tiny_lib-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "a") as archive:  # of half a megabyte
        archive.writestr("tiny_lib_data", random.Random(1).randbytes(500_000))
    bare.edit("requirements.txt", bare.lock.python[0].sha256, hashlib.sha256(wheel.read_bytes()).hexdigest())
    result = bundle.make(
        bare.project, bare.lock, Request(route=route), tmp_path / "out", bare.scratch(), 10**6, lambda _: None
    )
    assert result.route == chosen
    assert set(result.routes) == ({"host", "image"} if route is None else {route})
    assert result.routes[chosen] == min(result.routes.values())
    assert (result.contents.image is not None) == (chosen == "image")
    assert bool(result.contents.distributions) == (chosen == "host")


def test_an_image_that_was_not_built_is_asked_for(command: Command, bare: Small, tmp_path: Path) -> None:
    answer = command(bare.root, "bundle", TINY, "--output", str(tmp_path / "out"), "--route", "image")
    assert answer.code == 1
    assert "the image of tiny is not here" in answer.err
    argv = ("bundle", TINY, "--output", str(tmp_path / "out"), "--route", "image", "--python", PYTHON)
    assert command(bare.root, *argv).code == 2


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ('{"user": 0, "mounts": true}', True), ('{"user": 1000, "mounts": true}', False), ('{"user": 0}', False),
        ('{"user": 0, "mounts": "yes"}', False), ("[]", False), ("{", False), (None, False),
    ],
)  # fmt: skip
def test_an_image_goes_only_to_a_host_that_is_known_to_run_it(
    tmp_path: Path, machine: str | None, expected: bool
) -> None:
    if machine is not None:
        (tmp_path / "machine.json").write_text(machine)
    assert present.can_mount(tmp_path) is expected


def test_packages_are_fetched_beside_those_of_the_route(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fetch has folders of apt's own."""

    def fetch(_: object, lock: Lock, scratch: Path, __: object = None) -> dict[Entry, Path]:
        (scratch / "apt").mkdir()
        return dict.fromkeys(lock.debian, scratch)

    monkeypatch.setattr(interpreter.debian, "fetch", fetch)  # type: ignore[attr-defined]
    monkeypatch.setattr(interpreter, "_needed", lambda *_: [])
    small.edit("debian.txt", "bsdutils=1:2.38.1-5+deb12u3", f"python{PYTHON}=3.99")
    scratch = small.scratch()
    fetch(None, small.lock, scratch)
    assert list(interpreter.packages(small.project, small.lock, scratch)) == [f"python/{'d' * 64}.deb"]
