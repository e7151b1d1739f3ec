"""The layer of an extension: its step in the Dockerfile, as a shell runs it, and its Debian packages."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from builder.base import errors, machine
from builder.image import context, own, render, rootfs
from builder.lock import debian, lockfile
from builder.lock.lockfile import Entry, Lock
from tests.conftest import TINY, Small, make_wheel
from tests.unit.conftest import Command

Content = dict[str, str | None]  # a folder has none; a link's begins with an arrow


def tree(path: Path, content: Content, modes: dict[str, int] | None = None) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, text in content.items():
            header = tarfile.TarInfo(f"./{name}")
            header.mode, header.mtime = (modes or {}).get(name, 0o755), os.urandom(1)[0]
            if text is None:
                header.type = tarfile.DIRTYPE
            elif text.startswith("→"):
                header.type, header.linkname = tarfile.SYMTYPE, text[1:]
            else:
                header.size = len(text.encode())
            archive.addfile(header, io.BytesIO((text or "").encode()))
    return path


BASE: Content = {
    "usr": None, "usr/bin": None, "usr/bin/sh": "sh", "var": None, "var/lib": None, "var/lib/dpkg": None,
    "var/lib/dpkg/status": "one", "tmp": None, "bin": "→usr/bin",
}  # fmt: skip


def test_the_layer_has_what_more_packages_add_and_the_folders_above_it(tmp_path: Path) -> None:
    modes = {"var": 0o711}
    more = BASE | {"usr/bin/git": "git", "usr/bin/edit": "→sh", "var/lib/dpkg/status": "two"}
    target = tmp_path / "debian.tar"
    own.debian(tree(tmp_path / "base", BASE, modes), tree(tmp_path / "whole", more, modes), target)
    with tarfile.open(target) as archive:
        members = {member.name.removeprefix("./"): member for member in archive}
        status = archive.extractfile(members["var/lib/dpkg/status"])
        assert status and status.read() == b"two"
    assert list(members) == [
        "usr", "usr/bin", "var", "var/lib", "var/lib/dpkg", "var/lib/dpkg/status", "usr/bin/git", "usr/bin/edit",
    ]  # fmt: skip
    assert members["var"].mode == 0o711 and members["usr/bin/edit"].linkname == "sh"


@pytest.mark.parametrize(
    "change",
    [{"usr/bin/sh": "another"}, {"bin": "→usr/lib"}, {"usr/bin/sh": "→bash"}],
)
def test_a_package_that_changes_the_base_is_refused(tmp_path: Path, change: Content) -> None:
    base, whole = tree(tmp_path / "base", BASE), tree(tmp_path / "whole", BASE | change)
    with pytest.raises(errors.BadInputError, match=f"change files of the base layer: {next(iter(change))}"):
        own.debian(base, whole, tmp_path / "debian.tar")


def test_a_package_that_removes_a_file_of_the_base_is_refused(tmp_path: Path) -> None:
    less = {name: text for name, text in BASE.items() if name != "usr/bin/sh"}
    with pytest.raises(errors.BadInputError, match="change files of the base layer: usr/bin/sh"):
        own.debian(tree(tmp_path / "base", BASE), tree(tmp_path / "whole", less), tmp_path / "debian.tar")


@pytest.fixture
def mine(wheels: Small, command: Command) -> Lock:
    """An extension by a wheel with a command, and by what it needs."""
    entry = "[console_scripts]\nevaluate = extra:main\n"
    make_wheel(wheels.wheelhouse, "needed", "3.0", {"needed/__init__.py": "x = 1\n"})
    files = {"extra.py": "def main(): print('extra')\n", "extra-2.0.dist-info/entry_points.txt": entry}
    make_wheel(wheels.wheelhouse, "extra", "2.0", files, ["needed"])
    (wheels.root / "mine.txt").write_text("extra\n")
    answer = command(wheels.root, "extend", TINY, "mine.txt", "--name", "mine")
    assert answer.code == 0, answer.err
    return lockfile.load(wheels.project, "mine")


@pytest.fixture
def folder(wheels: Small, mine: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its build context."""
    (tmp_path / "rootfs.tar").touch()
    monkeypatch.setattr(rootfs, "make", lambda *_, **__: tmp_path / "rootfs.tar")
    return context.make(wheels.project, mine, wheels.scratch(), lambda _: None, fresh=False)


def test_the_context_describes_the_parent_as_the_parents_own_does(wheels: Small, mine: Lock, folder: Path) -> None:
    theirs = context.description(wheels.project, wheels.lock)
    assert json.loads((folder / "stack.json").read_text()) == json.loads(json.dumps(theirs))
    ours = json.loads((folder / "own" / "files" / "etc" / "vetted" / "stack.json").read_text())
    assert (ours["stack"], ours["lock"]) == ("mine", mine.digest)
    assert ours["extends"]["lock"] == wheels.lock.digest
    assert (folder / "own" / "files" / own.CONSTRAINTS).read_text() == "tiny-lib==1.0\nextra==2.0\nneeded==3.0\n"
    text = (folder / "requirements" / f"{render.OTHERS}.txt").read_text()
    assert text == lockfile.format_python(wheels.lock.python)


def step(small: Small, lock: Lock, folder: Path, tmp_path: Path) -> Path:
    """Run the very command of the Dockerfile, in folders of the test's own. Returns the layer."""
    text = render.dockerfile(small.project, lock)
    command = text.partition("FROM base AS own\nRUN ")[2].partition("\n\n")[0].replace("\\\n", " ")
    mounts = tmp_path / "mnt"
    mounts.mkdir()
    (tmp_path / "opt").mkdir()
    for source, name in ((folder / "own", "own"), (folder / "wheels" / "own", "wheels"), (folder / "uv" / "uv", "uv")):
        (mounts / name).symlink_to(source)
    python = Path(sys.base_prefix) / "bin" / f"python{lock.stack.python}"
    script = re.sub(r"--(network|mount)=\S+", "", command)
    for place, here in {
        f"/usr/bin/python{lock.stack.python}": str(python), "/mnt/": f"{mounts}/", "/layer": f"{tmp_path}/layer",
        "/opt/": f"{tmp_path}/opt/", f"{tmp_path}/layer{tmp_path}/opt/": f"{tmp_path}/layer/opt/",
    }.items():  # fmt: skip
        script = script.replace(place, here)
    env = {**machine.uv_offline(), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(["sh", "-ec", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tmp_path / "layer"


def test_the_step_of_the_layer_leaves_own_files_and_nothing_of_the_environment(
    wheels: Small, mine: Lock, folder: Path, tmp_path: Path
) -> None:
    layer = step(wheels, mine, folder, tmp_path)
    files = {str(path.relative_to(layer)) for path in layer.rglob("*") if not path.is_dir() and path.suffix != ".pyc"}
    site = f"opt/venv/{mine.site_packages}"
    assert {file for file in files if ".dist-info/" not in file} == {
        "etc/vetted/constraints.txt", "etc/vetted/stack.json", "opt/venv/bin/evaluate",
        f"{site}/extra.py", f"{site}/needed/__init__.py",
    }  # fmt: skip
    compiled = {path.name.partition(".")[0] for path in layer.rglob("*.pyc")}
    assert compiled == {"extra", "__init__"}
    assert {path.stat().st_mtime for path in (layer, *layer.rglob("*"))} == {render.LAYER_TIME}
    assert shutil.which("evaluate", path=str(layer / "opt/venv/bin"))


def test_debian_packages_alone_are_a_layer_too(
    wheels: Small, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "beside", lambda *_: [Entry("git", "1:2.39", "e" * 64)])
    answer = command(wheels.root, "extend", TINY, "--debian", "git", "--name", "mine")
    assert answer.code == 0, answer.err
    lock = lockfile.load(wheels.project, "mine")
    assert lock.own == lockfile.Own(debian=("git",)) and "1 Debian package" in answer.out
    base, whole = tree(tmp_path / "base.tar", BASE), tree(tmp_path / "whole.tar", BASE | {"usr/bin/git": "git"})
    monkeypatch.setattr(rootfs, "make", lambda _, lock, *__, **___: whole if lock.own.debian else base)
    folder = context.make(wheels.project, lock, wheels.scratch(), lambda _: None, fresh=False)
    layer = step(wheels, lock, folder, tmp_path)
    files = {str(path.relative_to(layer)) for path in layer.rglob("*") if path.is_file()}
    assert files == {"usr/bin/git", "etc/vetted/constraints.txt", "etc/vetted/stack.json"}
    assert (layer / "usr").stat().st_mtime == render.LAYER_TIME
