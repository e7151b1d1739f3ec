"""Loading images into Docker. The engine that fails is a stand-in; tests/engine has the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base import errors
from builder.image import daemon, oci

IMAGE = "sha256:" + "a" * 64
# What Docker 26 printed while another process removed an image with the same base.
REMOVED = "failed to unpack loaded image: content digest sha256:e4cc9fb08eea: not found"
DOCKER = """#!/bin/sh
# `load` fails until it was called often enough; `image inspect` knows the image from then on.
case "$1" in
load) cat >/dev/null; echo load >>{folder}/calls
      [ $(wc -l <{folder}/calls) -gt {failures} ] || {{ echo "{message}" >&2; exit 1; }} ;;
image) [ -e {folder}/calls ] && [ $(wc -l <{folder}/calls) -gt {failures} ] && echo {image} ;;
esac
"""


@pytest.fixture
def image(tmp_path: Path) -> oci.Image:
    (tmp_path / "layout").mkdir()
    return oci.Image(tmp_path / "layout", IMAGE, "sha256:" + "b" * 64, ())


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, message: str, failures: int) -> Path:
    """A docker command that fails that often; the file of its calls."""
    program = folder / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER.format(folder=folder, message=message, failures=failures, image=IMAGE))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return folder / "calls"


def test_a_layer_that_went_while_the_image_was_loaded_is_loaded_again(
    image: oci.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = stand_in(tmp_path, monkeypatch, REMOVED, 1)
    assert daemon.load(image, "vetted/small:1").reference == f"vetted/small@{IMAGE}"
    assert calls.read_text() == "load\nload\n"


@pytest.mark.parametrize(("message", "calls"), [(REMOVED, 2), ("unexpected EOF", 1)])
def test_an_image_that_cannot_be_loaded_is_an_error_with_dockers_words(
    image: oci.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str, calls: int
) -> None:
    log = stand_in(tmp_path, monkeypatch, message, 9)
    with pytest.raises(errors.VettedError) as caught:
        daemon.load(image, "vetted/small:1")
    assert message in str(caught.value)
    assert log.read_text() == "load\n" * calls
