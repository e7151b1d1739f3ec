"""Attacks on a stack's certificate by an own package: `vetted extend` promises that the parent stays as it was."""

from __future__ import annotations

import dataclasses
import io
import tarfile
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from builder.base import errors
from builder.image import build, overlap, own, render, target
from builder.image.daemon import Docker
from builder.lock.lockfile import Lock, Own
from tests.conftest import Small, make_wheel
from tests.registry.conftest import image_of

COMMAND = "[console_scripts]\n{name} = x:main\n"
OTHER = "x = 2\n"


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    files = {
        "lib/__init__.py": "", "lib/core.py": "x = 1\n", "parent-1.0.data/headers/parent.h": "1",
        "parent-1.0.dist-info/entry_points.txt": COMMAND.format(name="train"),
    }  # fmt: skip
    return make_wheel(tmp_path / "parent", "parent", "1.0", files)[0]


def refused(folder: Path, parent: Path, files: dict[str, str]) -> list[str]:
    wheel, _ = make_wheel(folder / "own", "own", "1.0", files)
    return [finding.removeprefix(f"{wheel.name} ") for finding in overlap.findings([wheel], [parent])]


@pytest.mark.parametrize(
    "path",
    [
        "./lib/core.py", "lib//core.py", "lib/./core.py", "Lib/Core.py", "own-1.0.data/purelib/./lib/core.py",
        "own-1.0.data/platlib/lib/core.py", "./own-1.0.data//purelib/lib/core.py",
    ],
)  # fmt: skip
def test_an_own_wheel_spells_the_path_of_a_file_of_the_parent_in_another_way(
    parent: Path, tmp_path: Path, path: str
) -> None:
    """`./x`, `a//x`, another case: it lands on the parent's file all the same, and is compared where it lands."""
    (finding,) = refused(tmp_path, parent, {path: OTHER})
    assert finding.casefold().startswith("brings another lib/core.py than parent-1.0")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("lib/python3.11/site-packages/lib/core.py", "brings another lib/core.py"),
        ("lib64/python3.11/site-packages/lib/core.py", "brings another lib/core.py"),
        ("lib/python3.11/site-packages/hook.pth", "brings hook.pth, which every Python would run at its start"),
        ("lib64/python3.11/site-packages/sitecustomize.py", "which every Python would run at its start"),
        ("lib64", "brings lib64, which is the image's own"),
        ("bin/./train", "brings another bin/train"),
        ("include/site/python3.11/parent/parent.h", "brings another include/site/parent/parent.h"),
    ],
)
def test_the_data_of_an_own_wheel_go_to_site_packages_by_their_full_path(
    parent: Path, tmp_path: Path, path: str, reason: str
) -> None:
    """What lies in `.data/data/` may go anywhere in the environment, also through the link lib64."""
    (finding,) = refused(tmp_path, parent, {f"own-1.0.data/data/{path}": OTHER})
    assert reason in finding


@pytest.mark.parametrize("path", ["a/../lib/core.py", "../site-packages/lib/core.py", "/lib/core.py"])
def test_the_path_of_a_file_of_an_own_wheel_leads_elsewhere(parent: Path, tmp_path: Path, path: str) -> None:
    """A step upwards, or an absolute path: no honest wheel has one."""
    (finding,) = refused(tmp_path, parent, {path: OTHER})
    assert finding.endswith("which is the image's own")


@pytest.mark.parametrize("name", ["./train", "x//../train", "../bin/train", "nvidia-smi", "sh", "./python3"])
def test_a_command_of_an_own_wheel_takes_the_place_of_another(parent: Path, tmp_path: Path, name: str) -> None:
    """A command of the parent's, spelled in another way, or a program of the system: bin/ is first in PATH."""
    (finding,) = refused(tmp_path, parent, {"own-1.0.dist-info/entry_points.txt": COMMAND.format(name=name)})
    assert "brings another bin/train" in finding or "which is the image's own" in finding


def test_an_own_wheel_brings_bytecode_for_a_module_of_the_parent(parent: Path, tmp_path: Path) -> None:
    """Python runs the bytecode in __pycache__, and in an image never compares it with its source."""
    (finding,) = refused(tmp_path, parent, {"lib/__pycache__/core.cpython-311.pyc": OTHER})
    assert finding == "brings lib/__pycache__/core.cpython-311.pyc, which hides lib/core.py"
    (finding,) = refused(tmp_path, parent, {"lib/__pycache__/__init__.cpython-311.pyc": OTHER})
    assert finding.endswith("which hides lib/__init__.py")
    assert refused(tmp_path, parent, {"own/core.py": "", "own/__pycache__/core.cpython-311.pyc": ""}) == []


@pytest.mark.parametrize(
    "path",
    [
        "parent-1.0.dist-info/METADATA", "parent-1.0.dist-info/entry_points.txt", "Parent-2.0.dist-info/METADATA",
        "PARENT.egg-info/PKG-INFO", "parent-3.DIST-INFO/METADATA",
    ],
)  # fmt: skip
def test_an_own_wheel_says_another_version_or_plugin_of_a_distribution_of_the_parent(
    parent: Path, tmp_path: Path, path: str
) -> None:
    """A second record under the name, in any spelling, changes the version that is found and the plugins that run."""
    (finding,) = refused(tmp_path, parent, {f"own-1.0.data/purelib/{path}": "Name: parent\nVersion: 2.0\n"})
    assert finding == f"brings {path}, which tells of another distribution than its own"


def test_an_own_wheel_has_a_file_twice(parent: Path, tmp_path: Path) -> None:
    """The installer takes the first, and a reader by name the last: each is compared."""
    wheel, _ = make_wheel(tmp_path / "own", "own", "1.0", {"lib/core.py": OTHER})
    with warnings.catch_warnings(), zipfile.ZipFile(wheel, "a") as archive:
        warnings.simplefilter("ignore", UserWarning)  # of zipfile's, about the second
        archive.writestr("lib/core.py", "x = 1\n")
    (finding,) = overlap.findings([wheel], [parent])
    assert "brings another lib/core.py" in finding


@pytest.mark.parametrize("text", ["[console_scripts]\nfoo = x:main\nbroken\n", "[console_scripts\ntrain = x:main\n"])
def test_the_commands_of_an_own_wheel_cannot_be_read(parent: Path, tmp_path: Path, text: str) -> None:
    """What cannot be read cannot be compared: another reader may see a command in it."""
    (finding,) = refused(tmp_path, parent, {"own-1.0.dist-info/entry_points.txt": text})
    assert finding.startswith("cannot be read: ")


def test_an_own_wheel_is_no_archive(parent: Path, tmp_path: Path) -> None:
    """It is refused in words, and not with a traceback."""
    (tmp_path / "own-1.0-py3-none-any.whl").write_bytes(b"PK\3\4 and no more")
    (finding,) = overlap.findings([tmp_path / "own-1.0-py3-none-any.whl"], [parent])
    assert finding.startswith("own-1.0-py3-none-any.whl cannot be read: ")


@pytest.mark.parametrize(
    "path",
    [
        "opt/venv/lib/python3.11/site-packages/torch/x.py", "opt/vetted/runtime/preflight.py", "etc/vetted/stack.json",
        "usr/local/bin/vetted", "vetted/smoke/__main__.py", "etc/ld.so.preload", "usr/lib/python3.11/sitecustomize.py",
    ],
)  # fmt: skip
def test_an_own_debian_package_writes_into_the_layers_of_the_parent(tmp_path: Path, path: str) -> None:
    """Its files come last in the image, and would lie over the stack's, the runtime's and the description."""
    for name, paths in (("base", ["./usr/bin/sh"]), ("whole", ["./usr/bin/sh", f"./{path}"])):
        with tarfile.open(tmp_path / name, "w") as archive:
            for each in paths:
                archive.addfile(tarfile.TarInfo(each), io.BytesIO())
    with pytest.raises(errors.BadInputError, match="where other layers have theirs") as refusal:
        own.debian(tmp_path / "base", tmp_path / "whole", tmp_path / "debian.tar")
    assert path in str(refusal.value)


SITE = "opt/venv/lib/python3.11/site-packages"
PARENT: Mapping[str, str | Path] = {
    f"{SITE}/lib/core.py": "x = 1\n", f"{SITE}/parent-1.0.dist-info/METADATA": "", "opt/venv/bin/train": "#!",
    "opt/venv/bin/python": Path("/usr/bin/python3"),
}  # fmt: skip
OURS: Mapping[str, str | Path] = {
    f"{SITE}/own/core.py": "",
    f"{SITE}/own-1.0.dist-info/METADATA": "",
    "etc/vetted/stack.json": "",
}


def keep(small: Small, monkeypatch: pytest.MonkeyPatch, layer: Mapping[str, str | Path]) -> None:
    """Keep what a build has left: an image of an extension with a package built from source, and this last layer."""
    lock = dataclasses.replace(small.lock, own=Own(python=("own",), source=("own",)))
    monkeypatch.setattr(render, "layers", lambda _: ["base", "libraries", "description", "own"])
    monkeypatch.setattr(Lock, "parent", small.lock)
    scratch = small.scratch()
    image = image_of(scratch / target.LAYOUT, [{"usr/bin/sh": ""}, PARENT, {"etc/vetted/stack.json": "1"}, layer])
    (scratch / target.INPUTS).write_text(small.inputs)
    build.keep(small.project, lock, image.layout, Docker("1", "v0", "6"), scratch)


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        (f"{SITE}/lib/core.py", OTHER, "has another lib/core.py than the parent"),
        (f"{SITE}/lib/core.py", Path("/tmp/core.py"), "has another lib/core.py than the parent"),
        (f"{SITE}/lib/__pycache__/core.cpython-311.pyc", OTHER, "which hides lib/core.py"),
        (f"{SITE}/hook.pth", "import os\n", "which every Python would run at its start"),
        (f"{SITE}/Parent-2.0.dist-info/METADATA", "", "which tells of a distribution that is not its own"),
        ("opt/venv/lib64/python3.11/site-packages/lib/core.py", OTHER, "has another lib/core.py than the parent"),
        ("opt/venv/bin/train", OTHER, "has another bin/train than the parent"),
        ("opt/venv/bin/nvidia-smi", OTHER, "has bin/nvidia-smi, which is the image's own"),
        (f"{SITE}/lib/.wh.core.py", "", "removes lib/.wh.core.py"),
    ],
)
def test_the_build_of_an_own_source_changes_what_checks_its_wheel(
    small: Small, monkeypatch: pytest.MonkeyPatch, path: str, content: str | Path, reason: str
) -> None:
    """Its setup.py runs in the stage of the check, and could replace Python there: the image itself is read as well."""
    with pytest.raises(errors.BadInputError, match="built from own source changes what tiny was certified") as refusal:
        keep(small, monkeypatch, {**OURS, path: content})
    assert reason in str(refusal.value)
    assert build.existing(small.project, small.lock) is None
    keep(small, monkeypatch, {**OURS, f"{SITE}/lib/more.py": "", f"{SITE}/lib/core.py": "x = 1\n"})
