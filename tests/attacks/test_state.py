"""Attacks on what a clone keeps and on what runs: each worked once, and is refused now."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builder import build, engine, errors, oci
from builder.project import Project
from tests.conftest import TINY, Small
from tests.unit.test_oci import Layout

# A Docker engine of which a test chooses to which image a tag points, and what its containers run.
DOCKER = """\
#!/bin/sh
echo "$*" >> "$CALLS"
case "$1 $2" in
  "image inspect") cat "$TAGGED" ;;
  "container inspect") cat "$RUNS" ;;
  "ps --all") for known in $CONTAINERS; do case "$*" in *"label=${known#*:}"*) echo "${known%%:*}" ;; esac; done ;;
  "load "*) cat > /dev/null ;;
esac
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of such an engine's state."""
    folder = tmp_path / "docker"
    folder.mkdir()
    (folder / "docker").write_text(DOCKER)
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for name in ("calls", "tagged", "runs"):
        (folder / name).touch()
        monkeypatch.setenv(name.upper(), str(folder / name))
    monkeypatch.setenv("CONTAINERS", "")
    return folder


def test_another_branch_moves_the_tag_before_the_image_runs(docker: Path, tmp_path: Path) -> None:
    """Two branches share a tag; between loading and running it comes to mean the other branch's image."""
    image = oci.read(Layout(tmp_path / "layout").root)
    (docker / "tagged").write_text(image.manifest)
    loaded = engine.load(image, "vetted/tiny:1")
    assert (loaded.digest, loaded.reference) == (image.manifest, f"vetted/tiny@{image.manifest}")
    (docker / "runs").write_text("sha256:" + "b" * 64)
    with pytest.raises(errors.VettedError, match="not sha256:") as caught:
        engine.confirm("a-container", loaded)
    assert caught.value.exit_code == 1
    (docker / "runs").write_text(image.manifest)
    engine.confirm("a-container", loaded)


def test_the_classic_store_knows_an_image_by_its_config_only(docker: Path, tmp_path: Path) -> None:
    """There, too, no tag is what runs."""
    image = oci.read(Layout(tmp_path / "layout").root)
    (docker / "tagged").write_text(image.config)
    assert engine.load(image, "vetted/tiny:1") == engine.Loaded(image.manifest, image.config, image.config)


def test_another_image_is_loaded_under_the_tag(docker: Path, tmp_path: Path) -> None:
    """What Docker reports after loading is not what was built."""
    image = oci.read(Layout(tmp_path / "layout").root)
    (docker / "tagged").write_text("sha256:" + "b" * 64)
    with pytest.raises(errors.VettedError, match="the image that was built is"):
        engine.load(image, "vetted/tiny:1")


def test_two_branches_with_one_lock_share_a_tag(small: Small) -> None:
    """The lock stays as it is, and the template differs."""
    before = build.reference(small.project, small.lock)
    template = small.root / "images" / "templates" / "Dockerfile.j2"
    template.write_text(template.read_text() + "# another line\n")
    assert build.reference(small.project, small.lock) != before


def test_a_run_removes_the_containers_of_another_clone(
    docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clones certify the same stack on one Docker engine."""
    ours, theirs = Project(tmp_path / "ours"), Project(tmp_path / "theirs")
    labels = [engine.run_label(one, TINY) for one in (ours, theirs)]
    monkeypatch.setenv("CONTAINERS", f"ours:{labels[0]} theirs:{labels[1]}")
    engine.remove_leftovers(ours, TINY)
    assert (docker / "calls").read_text().splitlines()[-1] == "rm --force ours"
