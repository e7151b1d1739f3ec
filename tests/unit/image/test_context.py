"""The build context: what an image says that it is made of, and which files each layer gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builder.image import context, render, rootfs
from builder.lock import lockfile
from tests.conftest import TINY, Small


def test_the_image_says_what_it_is_made_of(small: Small) -> None:
    described: dict[str, Any] = json.loads(json.dumps(context.description(small.project, small.lock)))
    assert described["stack"] == TINY
    assert described["lock"] == small.lock.digest
    assert described["distributions"] == {"tiny-lib": "1.0"}
    assert [patch["package"] for patch in described["patches"]] == ["tiny-lib"]


def test_every_layer_has_its_own_files_in_a_build(
    wheels: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "rootfs.tar").touch()
    monkeypatch.setattr(rootfs, "make", lambda *_, **__: tmp_path / "rootfs.tar")
    (wheel,) = wheels.wheelhouse.iterdir()
    (wheels.wheelhouse / "tiny_lib-1.1-py3-none-any.whl").write_bytes(wheel.read_bytes())
    folder = context.make(wheels.project, wheels.lock, wheels.scratch(), lambda _: None, fresh=False)
    assert [path.relative_to(folder) for path in (folder / "wheels").rglob("*.*")] == [
        Path("wheels") / render.OTHERS / wheel.name
    ]
    assert (folder / "requirements" / f"{render.OTHERS}.txt").read_text() == lockfile.format_python(wheels.lock.python)
