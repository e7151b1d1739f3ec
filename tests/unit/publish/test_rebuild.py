"""Verifying an image by building it again: what counts is the digest, and nothing that the image says of itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from builder.base import errors
from builder.image import build, oci
from builder.lock.lockfile import Lock
from builder.publish import rebuild
from builder.publish.rebuild import Rebuild
from tests.conftest import TINY, Small
from tests.registry.conftest import image_of
from tests.unit.conftest import Command

FILES = {"etc/content": "content", "etc/more": "more"}


class Builder:
    """Leaves an image with these files, as a build of the lock would."""

    def __init__(self, files: Mapping[str, str] = FILES) -> None:
        self.files, self.calls = files, 0

    def __call__(self, lock: Lock, scratch: Path) -> oci.Image:
        self.calls += 1
        return image_of(scratch / "layout", [self.files], labels=build.own_labels(lock))


@pytest.fixture
def layout(small: Small, tmp_path: Path) -> Path:
    """The image of the small stack, as a stranger hands it over."""
    return image_of(tmp_path / "theirs", [FILES], labels=build.own_labels(small.lock)).layout


def judge(small: Small, layout: Path, builder: rebuild.Builder) -> Rebuild:
    return rebuild.local(small.project, layout, None, builder)


def test_the_same_digest_needs_no_trust(small: Small, layout: Path) -> None:
    result = judge(small, layout, Builder())
    assert result.identical and result.doubts == ()
    assert (result.stack, result.lock, result.digest) == (TINY, small.lock.digest, oci.read(layout).manifest)
    assert result.alone("it").notes == (rebuild.SAME, rebuild.UNJUDGED)
    assert not small.project.scratch(TINY).exists()


def test_another_image_is_in_doubt_with_the_first_file_that_differs(small: Small, layout: Path) -> None:
    result = judge(small, layout, Builder({**FILES, "etc/more": "evil"}))
    assert not result.identical
    (doubt,) = result.doubts
    assert f"got      {oci.read(layout).manifest}" in doubt
    assert doubt.endswith("first difference: layer 1: /etc/more differs in content")
    assert rebuild.SAME not in result.alone("it").notes


def test_the_difference_is_a_digest_where_the_layers_are_not_here(small: Small, layout: Path) -> None:
    (layer,) = oci.read(layout).layers
    oci.blob(layout, layer.digest).unlink()
    result = judge(small, layout, Builder({**FILES, "etc/more": "evil"}))
    assert result.doubts[0] == f"the image is damaged: {layer.digest} is missing"
    assert result.doubts[1].endswith(f"first difference: layer 1 has other files: {layer.diff_id}")


def test_a_damaged_layer_is_in_doubt_though_the_manifest_is_the_same(small: Small, layout: Path) -> None:
    (layer,) = oci.read(layout).layers
    oci.blob(layout, layer.digest).write_bytes(b"evil")
    result = judge(small, layout, Builder())
    assert result.digest == result.image and not result.identical
    assert result.doubts == (f"the image is damaged: {layer.digest} has other content",)


@pytest.mark.parametrize(
    ("labels", "doubt"),
    [
        ({"dev.vetted.stack": "unknown"}, "this project has no stack 'unknown'"),
        ({"dev.vetted.stack": "../tiny"}, "this project has no stack '../tiny'"),
        ({"dev.vetted.stack": ""}, "the image names no stack"),
        ({"dev.vetted.lock": "sha256:" + "1" * 64}, "it was built from another lock of tiny"),
    ],
)
def test_nothing_is_built_where_the_lock_is_another(
    small: Small, tmp_path: Path, labels: Mapping[str, str], doubt: str
) -> None:
    theirs = image_of(tmp_path / "theirs", [FILES], labels={**build.own_labels(small.lock), **labels}).layout
    builder = Builder()
    result = judge(small, theirs, builder)
    assert result.doubts[0].startswith(doubt) and builder.calls == 0
    assert (result.digest, result.identical) == (None, False)


def test_the_image_that_an_earlier_build_left_is_not_taken(
    command: Command, small: Small, layout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.vetted` holds the very image; it is built anew all the same, without cache."""
    shutil.copytree(layout, small.project.state / "images" / TINY)
    uncached = []

    def run(_project: object, lock: Lock, scratch: Path, _report: object, *, no_cache: bool) -> Path:
        uncached.append(no_cache)
        return image_of(scratch / "layout", [{"etc/content": "other"}], labels=build.own_labels(lock)).layout

    monkeypatch.setattr(build, "_run", run)
    monkeypatch.setattr("builder.image.daemon.docker", lambda: None)
    answer = command(small.root, "verify", str(layout), "--offline", "--rebuild")
    assert (answer.code, uncached) == (1, [True])
    assert answer.out.splitlines()[-1] == "not identical"


def test_without_a_key_it_says_that_nothing_else_was_judged(
    command: Command, small: Small, layout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder()
    monkeypatch.setattr(build, "anew", lambda _project, lock, scratch, _: builder(lock, scratch))
    argv = ("verify", str(layout), "--offline", "--rebuild")
    answer = command(small.root, *argv)
    assert answer.code == 0, answer.err
    assert [line.strip() for line in answer.out.splitlines()[-3:]] == [
        rebuild.SAME, rebuild.UNJUDGED, "identical, and not certified",
    ]  # fmt: skip
    summary = command(small.root, *argv, "--json").json
    assert (summary["good"], summary["identical"], summary["signed"], summary["certificates"]) == (
        True,
        True,
        False,
        [],
    )
    assert summary["rebuilt"] == summary["image"] == oci.read(layout).manifest


def test_a_key_is_required_without_a_rebuild(command: Command, small: Small, layout: Path) -> None:
    for options, message in (([], "--key"), (["--rebuild", "--hardware=H200"], "--hardware")):
        answer = command(small.root, "verify", str(layout), "--offline", *options)
        assert answer.code == 2
        assert message in answer.err and "Traceback" not in answer.err


@pytest.mark.parametrize("text", ["", "[]", '{"manifests": [{}]}', '{"manifests": []}', "[" * 100_000])
def test_a_folder_that_is_no_layout_is_said(small: Small, layout: Path, text: str) -> None:
    (layout / "index.json").write_text(text)
    with pytest.raises(errors.BadInputError):
        judge(small, layout, Builder())


def test_labels_that_are_no_labels_name_no_stack(small: Small, layout: Path) -> None:
    image = oci.read(layout)
    config = json.loads(oci.blob(layout, image.config).read_text())
    config["config"] = []
    theirs = layout.parent / "other"
    oci.begin(theirs)
    manifest = json.loads(oci.blob(layout, image.manifest).read_text())
    manifest["config"] = oci.add(theirs, json.dumps(config).encode(), manifest["config"]["mediaType"])
    for layer in image.layers:
        oci.add(theirs, oci.blob(layout, layer.digest).read_bytes(), layer.media_type)
    oci.finish(theirs, [oci.add(theirs, json.dumps(manifest).encode(), oci.MANIFEST)])
    assert judge(small, theirs, Builder()).doubts[0].startswith("the image names no stack")
