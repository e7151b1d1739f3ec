"""Attacks on what an image is made from: each worked once."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path

import pytest

from builder.base import errors, process, project
from builder.base.project import Project
from builder.image import bake, build, oci, rootfs, target
from builder.lock import debian
from builder.lock.apt import plain_path
from tests.conftest import TINY, Small
from tests.unit.image.test_build import put_image
from tests.unit.image.test_oci import Layout

# --- the image that is kept ----------------------------------------------------------------------------------------


def existing(small: Small) -> build.Built | None:
    return build.existing(small.project, small.lock)


@pytest.mark.parametrize("label", ["org.opencontainers.image.title", "dev.vetted.stack", "dev.vetted.lock"])
def test_the_layout_and_record_of_another_image_stand_in(small: Small, label: str) -> None:
    """The record names today's inputs and the other image, and even its seal is valid."""
    put_image(small, labels={label: "another"})
    assert existing(small) is None
    shutil.rmtree(small.project.state / "images")
    put_image(small)
    assert existing(small) is not None


@pytest.mark.parametrize("part", ["layer", "config", "manifest"])
def test_a_blob_of_a_kept_image_is_changed(small: Small, part: str) -> None:
    """Its size stays, and its time is set back."""
    layout = put_image(small)
    path = layout.path({"layer": layout.layers[0], "config": layout.config, "manifest": layout.manifest}[part])
    content, times = path.read_bytes(), path.stat()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert existing(small) is None


def test_a_record_is_written_for_an_image_that_was_never_built(small: Small) -> None:
    """The record is consistent, but it has no seal, or the seal of another image."""
    layout = put_image(small)
    (sealed,) = (small.project.state / "images").glob("*.seal")
    kept = sealed.read_bytes()
    sealed.unlink()
    assert existing(small) is None
    sealed.write_bytes(kept)
    assert existing(small) is not None
    shutil.rmtree(layout.root)
    other = put_image(small, content=b"other content")
    assert existing(small) is not None
    sealed.write_bytes(kept)
    assert other.manifest != layout.manifest
    assert existing(small) is None


@pytest.mark.parametrize("record", ["[]", "1", "null", '"x"', "[" * 100_000, '{"inputs": [], "manifest": {}}'])
def test_a_record_of_another_shape_ends_in_a_traceback(small: Small, record: str) -> None:
    """It is a list, a number, or nested deeply."""
    put_image(small)
    (small.project.state / "images" / f"{TINY}.json").write_text(record)
    assert existing(small) is None


# --- Debian packages and the root filesystem -----------------------------------------------------------------------


def locked_deb(small: Small, content: bytes) -> Path:
    """A kept package that has the locked hash."""
    sha256 = project.sha256(content).removeprefix("sha256:")
    small.edit("debian.txt", "d" * 64, sha256)
    kept = small.project.state / "debs" / f"{sha256}.deb"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(content)
    return kept


def test_a_kept_debian_package_is_exchanged(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has the expected name; it is now fetched again."""
    kept = locked_deb(small, b"a package")
    assert list(debian.fetch(small.project, small.lock, small.scratch()).values()) == [kept]
    kept.write_bytes(b"a changed one")
    requests = []

    def apt(root: Path, suite: str) -> None:
        requests.append((root, suite))
        raise errors.NetworkError("the mirror is asked")

    monkeypatch.setattr(debian, "Apt", apt)
    with pytest.raises(errors.NetworkError, match="the mirror is asked"):
        debian.fetch(small.project, small.lock, small.scratch())
    assert len(requests) == 1


def test_a_kept_root_filesystem_is_exchanged(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has the name of the expected packages."""
    targets: list[Path] = []

    def mmdebstrap(target: Path, *_: object) -> None:
        target.write_bytes(b"the root filesystem")
        targets.append(target)

    monkeypatch.setattr(rootfs, "_mmdebstrap", mmdebstrap)
    monkeypatch.setattr(debian, "fetch", lambda *_: {})
    first = rootfs.make(small.project, small.lock, small.scratch())
    assert rootfs.make(small.project, small.lock, small.scratch()) == first
    assert len(targets) == 1
    first.write_bytes(b"another filesystem!")
    assert rootfs.make(small.project, small.lock, small.scratch()).read_bytes() == b"the root filesystem"
    assert len(targets) == 2


# --- what a build has --------------------------------------------------------------------------------------------


@pytest.fixture
def dockerfile(real: Project) -> str:
    return (real.root / "images" / "trl1.16-cpu" / "Dockerfile").read_text()


def steps(text: str) -> list[str]:
    return [line for line in text.replace("\\\n", " ").splitlines() if line.startswith("RUN")]


def test_a_setup_py_calls_home_while_the_image_is_built(dockerfile: str) -> None:
    """It once had the network and the index's credentials as a secret mount; now no step has either."""
    commands = steps(dockerfile)
    assert len(commands) > 10
    for step in commands:
        assert "--network=none" in step
        assert "type=secret" not in step


def test_two_poisoned_builds_prove_each_other(dockerfile: str) -> None:
    """A cache mount survives `--no-cache`: files unpacked in it would enter both builds."""
    assert "type=cache" not in dockerfile
    for step in (step for step in steps(dockerfile) if "uv pip install" in step or "uv build" in step):
        assert "--no-cache" in step and "--no-index" in step and "--offline" in step
        assert "--require-hashes" in step or "from=source-wheels,source=/wheels" in step


def test_a_setup_py_writes_into_the_layers_folder(dockerfile: str) -> None:
    """The stage that builds a wheel runs foreign code: only its wheels are taken, by a stage that ran none."""
    stages = dockerfile.split("\nFROM ")
    (building,) = [stage for stage in stages if "uv build" in stage]
    assert building.startswith("base AS source-wheels")
    assert "/layer" not in building
    users = [line for line in dockerfile.splitlines() if "from=source-wheels" in line]
    assert [line.strip(" \\") for line in users] == [
        "--mount=type=bind,from=source-wheels,source=/wheels,target=/mnt/wheels"
    ]
    (installing,) = [stage for stage in stages if "from=source-wheels" in stage]
    assert installing.startswith("base AS source\n")


@pytest.fixture
def without_debian(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "rootfs.tar").touch()
    monkeypatch.setattr(rootfs, "make", lambda *_, **__: tmp_path / "rootfs.tar")


@pytest.mark.usefixtures("without_debian")
def test_a_bake_folder_is_handed_over_with_the_indexs_password(wheels: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """It once was in a file that everybody could read; now it is not in the folder."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://somebody:planted-secret@mirror.test/simple")
    bake.prepare(wheels.project, [wheels.lock], wheels.scratch(), lambda _: None)
    files = [path for path in bake.folder(wheels.project).rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert b"planted-secret" not in path.read_bytes()


@pytest.mark.usefixtures("without_debian")
@pytest.mark.parametrize("name", ["with space", "with,comma", 'with"quote', "with:colon", "wi=th"])
def test_a_path_is_read_as_options(wheels: Small, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """buildx reads the output's options as a line of CSV: a comma in the path begins another option."""
    monkeypatch.setenv("VETTED_STATE", str(tmp_path / name))
    goal = target.make(wheels.project, wheels.lock, wheels.scratch(), lambda _: None, fresh=False)
    (output,) = goal.output
    (fields,) = csv.reader([output])
    assert fields[2] == f"dest={wheels.project.scratch(TINY) / target.LAYOUT}"
    assert len(fields) == 6


@pytest.mark.usefixtures("without_debian")
def test_what_a_build_is_given_cannot_be_read_under_a_tight_umask(wheels: Small) -> None:
    """The files of an image must be readable for its user, whatever the umask of this machine is."""
    before = os.umask(0o077)
    try:
        goal = target.make(wheels.project, wheels.lock, wheels.scratch(), lambda _: None, fresh=False)
        result = process.run(["sh", "-c", "umask"])
        with process.running(["sh", "-c", "umask"], umask=0o022) as child:
            opened = child.communicate()[0]
    finally:
        os.umask(before)
    for path in (Path(goal.context) / "runtime").rglob("*"):
        assert path.stat().st_mode & 0o044 == 0o044, path
    assert (result.stdout.strip(), opened.strip()) == ("0077", "0022")


@pytest.mark.parametrize("name", ["with space", 'with"quote', "with,comma", "with:colon", "[brackets]"])
def test_a_path_is_read_as_a_line_of_apts_sources(tmp_path: Path, name: str) -> None:
    """A space in the project's path ended the URI of the repository that mmdebstrap reads."""
    folder = tmp_path / name
    folder.mkdir()
    with plain_path(folder) as plain:
        assert not set(str(plain)) & set(" \"',:[]")
        (plain / "file").write_text("there")
    assert (folder / "file").read_text() == "there"
    assert not plain.exists()


def test_a_layer_is_a_sparse_file_of_a_terabyte(tmp_path: Path) -> None:
    """Hashing it would take hours; its size shows that it is another layer."""
    image = oci.read(Layout(tmp_path / "layout").root)
    layer = oci.blob(image.layout, image.layers[0].digest)
    with layer.open("wb") as file:
        file.truncate(1 << 40)
    assert list(oci.damaged(image)) == [f"{image.layers[0].digest} has other content"]
