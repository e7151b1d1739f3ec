"""The bake file: what BuildKit is told of every image, and nothing that a stack's name could break."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.base import errors
from builder.image import bake, rootfs, target
from tests.conftest import TINY, Small


@pytest.fixture
def without_debian(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The root filesystem takes mmdebstrap and a mirror; here it is an empty file."""
    (tmp_path / "rootfs.tar").touch()
    monkeypatch.setattr(rootfs, "make", lambda *_, **__: tmp_path / "rootfs.tar")


@pytest.mark.usefixtures("without_debian")
def test_the_file_names_all_that_a_build_of_one_image_is_told(wheels: Small) -> None:
    small = wheels
    path = bake.prepare(small.project, [small.lock], small.scratch(), lambda _: None)
    assert path == small.project.state / "bake" / "docker-bake.json"
    document = json.loads(path.read_text())
    assert document["group"] == {"default": {"targets": [bake.name(small.lock)]}}
    (options,) = document["target"].values()
    own = path.parent / TINY
    assert options["context"] == str(own / "context")
    assert options["contexts"] == {"uv": str(own / "context/uv"), "wheels": str(own / "context/wheels")}
    assert options["dockerfile"] == str(small.project.dockerfile(TINY))
    assert options["args"] == {"SOURCE_DATE_EPOCH": str(small.lock.epoch)}
    assert options["tags"] == [target.reference(small.project, small.lock)]
    assert options["attest"] == ["type=provenance,disabled=true", "type=sbom,disabled=true"]
    (output,) = options["output"]
    assert output.startswith(f"type=oci,tar=false,dest={own / target.LAYOUT},compression=zstd,")
    for folder in (options["context"], *options["contexts"].values()):
        assert Path(folder).is_dir()


@pytest.mark.usefixtures("without_debian")
def test_what_an_earlier_file_named_is_gone(wheels: Small) -> None:
    small = wheels
    bake.folder(small.project).joinpath("other").mkdir(parents=True)
    bake.prepare(small.project, [small.lock], small.scratch(), lambda _: None)
    assert sorted(path.name for path in bake.folder(small.project).iterdir()) == [bake.FILE, TINY]


def test_a_dockerfile_edited_by_hand_is_in_no_bake_file(small: Small) -> None:
    path = small.project.dockerfile(TINY)
    path.write_text(path.read_text() + "RUN true\n")
    with pytest.raises(errors.VettedError, match="is not what its lock renders to"):
        bake.prepare(small.project, [small.lock], small.scratch(), lambda _: None)
    assert not bake.folder(small.project).exists()
