"""Layers without the host's files: put together they are the image's, and anything else is refused."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.base import errors
from builder.base.project import Project, sha256
from builder.bundle import inside, layers, present, routes
from builder.bundle.contents import CONFIG, CarriedImage
from builder.image.build import Built
from builder.image.oci import Image
from tests import layouts
from tests.conftest import Small

LARGE, OTHER = b"large = 1\n" * 4000, b"other = 2\n" * 3000
LONG = "a/" * 80 + "name"


def tar(*files: tuple[str, bytes | str]) -> bytes:
    """An archive of files, of links where the content is a text, and of folders."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            if name.endswith("/"):
                info.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
            else:
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if info.isreg() else None)  # type: ignore[arg-type]
    return stream.getvalue()


FIRST = tar(
    ("opt/", ""), ("opt/large.py", LARGE), ("opt/empty", b""), ("opt/link", "large.py"), (f"opt/{LONG}", LARGE),
    ("opt/small", b"x"), ("opt/other.py", OTHER), ("opt/gone", b"x"), ("opt/changed", "../outside"),
)  # fmt: skip
SECOND = tar(("opt/.wh.gone", b""), ("opt/changed", b"a file in place of a link"))


def make_image(folder: Path, archives: tuple[bytes, ...] = (FIRST, SECOND)) -> Image:
    """An image of these layers, not compressed."""
    return layouts.write(folder, archives, {"config": {"Env": ["PATH=/usr/bin", "EMPTY="]}})


def listed(*contents: bytes) -> dict[str, int]:
    return {hashlib.sha256(content).hexdigest(): len(content) for content in contents}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    folder = tmp_path / "host"
    folder.mkdir()
    (folder / "a").write_bytes(LARGE)
    (folder / "b").write_bytes(OTHER)
    return folder


def test_a_layer_comes_back_byte_for_byte(tmp_path: Path, host: Path) -> None:
    image = make_image(tmp_path / "layout")
    layer = image.layers[0]
    known = listed(LARGE, OTHER, b"x", b"nothing of it")
    cuts = layers.cuts_of(image.layout, layer, known)
    assert [cut.size for cut in cuts] == [len(LARGE), len(LARGE), 1, len(OTHER), 1]
    (host / "c").write_bytes(b"x")
    target = tmp_path / "layer"
    layers.write(image.layout, layer, cuts, target)
    assert target.stat().st_size < 2000
    paths = present.find([host], known)
    assert b"".join(layers.rebuilt(target, layers.ZSTD, layers.read_cuts(target), paths)) == FIRST


@pytest.fixture
def unpacked(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Project, CarriedImage]:
    """An unpacked bundle of an image, for a host that has its two large files."""
    monkeypatch.setattr(inside, "_require_namespaces", lambda: None)  # nothing is entered here
    built = Built(make_image(tmp_path / "layout"), "vetted/tiny:0", "0.1", "sha256:")
    load = routes.of_image(small.project, small.lock, built, listed(LARGE, OTHER), small.scratch(), lambda _: None)
    root = tmp_path / "bundle"
    for name, path in load.tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(path.read_bytes())
    assert load.image is not None
    return Project(root), load.image


def prepare(unpacked: tuple[Project, CarriedImage], *folders: Path) -> inside.Tree:
    project, image = unpacked
    with project.holding("tiny") as scratch:
        return inside.prepare(project, image, folders, scratch, lambda _: None)


def test_the_layers_make_the_root_filesystem(unpacked: tuple[Project, CarriedImage], host: Path) -> None:
    tree = prepare(unpacked, host)
    opt = tree.path / "opt"
    assert ((opt / "large.py").read_bytes(), (opt / LONG).read_bytes()) == (LARGE, LARGE)
    assert (opt / "large.py").stat().st_mode & 0o777 == 0o755
    assert str((opt / "link").readlink()) == "large.py"
    assert not (opt / "gone").exists() and not (opt / ".wh.gone").exists()
    assert (opt / "changed").read_bytes() == b"a file in place of a link"
    assert not (tree.path / "outside").exists()
    assert tree.environment == {"PATH": "/usr/bin", "EMPTY": ""}
    # It is kept, and made again when somebody has changed it.
    before = opt.stat().st_ino
    assert prepare(unpacked).path.joinpath("opt").stat().st_ino == before
    (opt / "small").write_bytes(b"y")
    assert (prepare(unpacked, host).path / "opt" / "small").read_bytes() == b"x"


def test_a_host_that_lacks_a_file_is_refused(unpacked: tuple[Project, CarriedImage], host: Path) -> None:
    (host / "b").write_bytes(OTHER.replace(b"2", b"3", 1))
    with pytest.raises(errors.BadInputError, match="lacks 1 of the files that the bundle leaves out: those of layer 1"):
        prepare(unpacked, host)


def test_a_file_of_the_host_that_changes_meanwhile_is_refused(
    unpacked: tuple[Project, CarriedImage], host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = present.find([host], listed(LARGE, OTHER))
    for content in (LARGE.replace(b"1", b"9", 1), LARGE[:-1]):
        (host / "a").write_bytes(content)
        with monkeypatch.context() as patched:
            patched.setattr(present, "find", lambda *_: paths)
            with pytest.raises(errors.BadInputError, match=r"not the image's|shorter than it was"):
                prepare(unpacked, host)
    assert not list((unpacked[0].state / "image").glob("*"))


def test_a_file_of_the_host_that_changes_between_hash_and_unpacking_is_refused(
    unpacked: tuple[Project, CarriedImage], host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer is read twice: what is unpacked must be what was hashed."""
    rebuilt, calls = layers.rebuilt, []

    def changing(*arguments: Any) -> Iterator[bytes]:
        calls.append(arguments)
        if len(calls) == 2:  # the first layer is unpacked
            (host / "a").write_bytes(LARGE.replace(b"1", b"9", 1))
        return rebuilt(*arguments)

    monkeypatch.setattr(layers, "rebuilt", changing)
    with pytest.raises(errors.BadInputError, match="a layer is not the image's"):
        prepare(unpacked, host)
    assert len(calls) == 2 and not list((unpacked[0].state / "image").glob("*"))


def _list(root: Path) -> Path:
    (path,) = (root / "image").glob("*.cuts.json")
    return path


def _layer(root: Path) -> Path:
    return _list(root).with_name(_list(root).name.removesuffix(".cuts.json"))


def _edit(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        (lambda root: (root / CONFIG).write_text((root / CONFIG).read_text().replace("/usr/bin", "/evil")), "config"),
        (lambda root: (root / CONFIG).write_text("{"), "cannot be read"),
        (lambda root: (root / CONFIG).unlink(), "cannot be read"),
        (lambda root: (root / "image/manifest.json").write_bytes(b"{}"), "cannot be read"),
        (lambda root: _edit(root / "image/manifest.json", lambda data: {**data, "annotations": {}}), "manifest"),
        (lambda root: _list(root).write_text("{}"), "cuts.json"),
        (lambda root: _list(root).unlink(), "a layer is not the image's"),
        (lambda root: _edit(_list(root), lambda cuts: cuts[1:]), "shorter than it was"),
        (
            lambda root: _layer(root).write_bytes(_layer(root).read_bytes()[:-9]),
            "cannot be read|not the image's|shorter",
        ),
        (lambda root: _layer(root).write_bytes(b"no archive"), "cannot be read"),
        (lambda root: _layer(root).unlink(), "cannot be read"),
        (lambda root: _edit(_list(root), lambda cuts: [*cuts, cuts[0]]), "they overlap"),
        (lambda root: _edit(_list(root), lambda cuts: [[0, -1, cuts[0][2]]]), "they overlap"),
        (lambda root: _edit(_list(root), lambda cuts: [[10**9, *cuts[0][1:]]]), "shorter than it was"),
    ],
)
def test_an_image_that_was_edited_is_refused(
    unpacked: tuple[Project, CarriedImage], host: Path, tamper: Callable[[Path], None], words: str
) -> None:
    tamper(unpacked[0].root)
    with pytest.raises(errors.BadInputError, match=words):
        prepare(unpacked, host)


def test_another_image_in_its_place_is_refused(unpacked: tuple[Project, CarriedImage], host: Path) -> None:
    """Whole in itself, with its own manifest: the bundle names the one that was certified."""
    project, image = unpacked
    evil = image.model_copy(update={"manifest": sha256(b"another")})
    with pytest.raises(errors.BadInputError, match="the manifest is not the image's"):
        prepare((project, evil), host)


def test_a_host_that_cannot_enter_an_image_says_so_before_any_work(
    unpacked: tuple[Project, CarriedImage], host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(errors.MissingToolError, match="cannot run an image") as caught:
        prepare(unpacked, host)
    assert "--route host" in caught.value.next_step
