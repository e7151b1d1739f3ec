"""Comparing two images: equal images do not differ; of different ones the first difference is named."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.base import errors
from builder.image import compare, oci
from tests.unit.image.test_oci import FILES, GZIP, PLAIN, ZSTD, File, Layout


def difference(first: Layout, second: Layout) -> str:
    first_difference = compare.difference(oci.read(first.root), oci.read(second.root))
    assert first_difference is not None
    assert first_difference.first != first_difference.second
    assert f"first  {first_difference.first}" in str(first_difference)
    assert f"second {first_difference.second}" in str(first_difference)
    return first_difference.what


@pytest.mark.parametrize("media", [ZSTD, GZIP, PLAIN])
def test_two_equal_images_do_not_differ(tmp_path: Path, media: str) -> None:
    a, b = (Layout(tmp_path / name, [FILES, FILES[:1]], media=media) for name in "ab")
    assert compare.difference(oci.read(a.root), oci.read(b.root)) is None


@pytest.mark.parametrize("media", [ZSTD, GZIP, PLAIN])
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"content": b"Other content"}, "/etc/b differs in content"),
        ({"content": b"longer other content"}, "/etc/b differs in content"),
        ({"mtime": 1_000_000_001}, "/etc/b differs in mtime"),
        ({"mode": 0o755}, "/etc/b differs in mode"),
        ({"owner": 1000}, "/etc/b differs in owner"),
        ({"content": b"x", "mtime": 7}, "/etc/b differs in mtime, content"),
        ({"link": "a"}, "/etc/b differs in type, link, content"),
        ({"headers": (("SCHILY.xattr.user.x", "1"),)}, "/etc/b differs in extended headers"),
        ({"name": "etc/bb"}, "/etc/b where the other has /etc/bb"),
    ],
)
def test_the_first_file_that_differs_is_named(tmp_path: Path, media: str, change: dict[str, Any], what: str) -> None:
    changed = [FILES[0], replace(FILES[1], **change), replace(FILES[2], mtime=9)]
    first = Layout(tmp_path / "a", [FILES[:1], FILES], media=media)
    second = Layout(tmp_path / "b", [FILES[:1], changed], media=media)
    assert difference(first, second) == f"layer 2: {what}"


def test_another_order_is_named(tmp_path: Path) -> None:
    first, second = Layout(tmp_path / "a"), Layout(tmp_path / "b", [[FILES[1], FILES[0], FILES[2]]])
    assert difference(first, second) == "layer 1: /etc/a where the other has /etc/b"


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_file_that_only_one_has_is_named(tmp_path: Path, which: str) -> None:
    layouts = [Layout(tmp_path / "a"), Layout(tmp_path / "b", [FILES[:-1]])]
    if which == "first":
        layouts.reverse()
    assert difference(*layouts) == "layer 1: /etc/c is in only one of them"


def test_another_encoding_of_the_same_files_is_named(tmp_path: Path) -> None:
    first, second = Layout(tmp_path / "a", kind=tarfile.USTAR_FORMAT), Layout(tmp_path / "b", kind=tarfile.GNU_FORMAT)
    assert difference(first, second) == "layer 1: the same files, in another encoding of the archive"


def test_another_compression_alone_is_named(tmp_path: Path) -> None:
    first, second = Layout(tmp_path / "a", level=1), Layout(tmp_path / "b", level=19)
    assert difference(first, second) == "layer 1: same content, compressed differently"


def test_another_number_of_layers_is_named(tmp_path: Path) -> None:
    first, second = Layout(tmp_path / "a"), Layout(tmp_path / "b", [FILES, FILES])
    assert difference(first, second) == "number of layers"


def test_another_configuration_is_named(tmp_path: Path) -> None:
    assert difference(Layout(tmp_path / "a"), Layout(tmp_path / "b", user="0")) == "config"


def test_another_manifest_is_named(tmp_path: Path) -> None:
    assert difference(Layout(tmp_path / "a"), Layout(tmp_path / "b", annotation="x")) == "manifest"


@pytest.mark.parametrize("media", [ZSTD, GZIP, PLAIN])
def test_a_layer_that_was_cut_short_is_a_bad_input(tmp_path: Path, media: str) -> None:
    first = Layout(tmp_path / "a", media=media)
    second = Layout(tmp_path / "b", [[File("etc/b")]], media=media)
    path = first.path(first.layers[0])
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(errors.BadInputError):
        compare.difference(oci.read(first.root), oci.read(second.root))
