"""Building: when an image is that of a lock, and what never starts a build."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from builder.base import errors
from builder.image import build, context, daemon, oci, target
from builder.image.buildx import BuildStep
from tests.conftest import TINY, Small
from tests.unit.image.test_oci import File, Layout

DIGEST = "sha256:" + "1" * 64


def put_image(small: Small, *, labels: Mapping[str, str] | None = None, content: bytes = b"content") -> Layout:
    """What a build of today's lock and Dockerfile leaves behind; the labels are besides, or instead of, its own."""
    files = [File("etc/content", content)]
    root = small.project.state / "images" / TINY
    layout = Layout(root, [files], labels={**build.own_labels(small.lock), **(labels or {})})
    built = build.Built(oci.read(root), target.reference(small.project, small.lock), "v0.19", small.inputs)
    build.put_record(small.project, small.lock, built, small.scratch())
    return layout


def existing(small: Small) -> build.Built | None:
    return build.existing(small.project, small.lock)


def test_an_edit_during_a_build_is_not_taken_for_what_was_built(small: Small) -> None:
    scratch = small.scratch()
    layout = Layout(scratch / target.LAYOUT)
    (scratch / target.INPUTS).write_text(target.inputs_of(small.project, small.lock, "FROM scratch\n"))
    docker = daemon.Docker("26.1", "v0.19", "6.1")
    built = build.keep(small.project, small.lock, layout.root, docker, scratch)
    assert built.image.manifest == layout.manifest["digest"]
    assert existing(small) is None


def test_an_image_of_this_lock_and_dockerfile_is_not_built_again(small: Small) -> None:
    assert existing(small) is None
    layout = put_image(small)
    built = existing(small)
    assert built is not None
    assert built.image == oci.read(layout.root)
    assert built.reference == f"vetted/{TINY}:{small.inputs.removeprefix('sha256:')[:12]}"
    assert built.buildkit == "v0.19"
    again = build.build(small.project, small.lock, small.scratch(), unreachable)
    assert again == built


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("lock.toml", "1700000000", "1700000001"),
        ("stack.toml", 'title = "Tiny"', 'title = "Another"'),
        ("debian.txt", "deb12u3", "deb12u4"),
    ],
)
def test_an_image_of_another_lock_or_dockerfile_does_not_count(small: Small, file: str, old: str, new: str) -> None:
    put_image(small)
    small.edit(file, old, new)
    assert existing(small) is None


def test_an_image_of_another_template_does_not_count(small: Small) -> None:
    put_image(small)
    template = small.root / "images" / "templates" / "Dockerfile.j2"
    template.write_text(template.read_text() + "# another line\n")
    assert existing(small) is None


@pytest.mark.parametrize("lost", ["layer", "manifest", "config"])
def test_an_image_of_which_a_part_is_lost_does_not_count(small: Small, lost: str) -> None:
    layout = put_image(small)
    layout.path({"layer": layout.layers[0], "manifest": layout.manifest, "config": layout.config}[lost]).unlink()
    assert existing(small) is None


@pytest.mark.parametrize("record", ["", "{", "{}", '{"inputs": "x"}', '{"inputs": "x", "manifest": "x"}'])
def test_a_damaged_record_does_not_count(small: Small, record: str) -> None:
    put_image(small)
    (small.project.state / "images" / f"{TINY}.json").write_text(record)
    assert existing(small) is None


def test_a_layout_that_is_not_the_recorded_one_does_not_count(small: Small) -> None:
    layout = put_image(small)
    small_record = small.project.state / "images" / f"{TINY}.json"
    small_record.write_text(small_record.read_text().replace(layout.manifest["digest"], DIGEST))
    assert existing(small) is None


def test_an_image_that_says_something_else_of_itself_does_not_count(small: Small) -> None:
    put_image(small)
    before = context.description(small.project, small.lock)
    small.edit("stack.toml", "it greets nobody", "it is impolite")
    assert context.description(small.project, small.lock) != before
    assert existing(small) is None


def unreachable(step: BuildStep) -> None:
    raise AssertionError(f"a build began: {step}")


def test_a_dockerfile_edited_by_hand_is_never_built(small: Small) -> None:
    path = small.project.dockerfile(TINY)
    path.write_text(path.read_text().replace("USER 1000:1000", "USER root"))
    for call in (build.build, build.prove):
        with pytest.raises(errors.VettedError, match="-USER root\n\\+USER 1000:1000") as caught:
            call(small.project, small.lock, small.scratch(), unreachable)
        assert caught.value.exit_code == 1
        assert caught.value.next_step == f"vetted render {TINY}"
