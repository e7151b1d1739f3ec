"""Building: when an image is that of a lock, what BuildKit's progress says, and what never starts a build."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from builder.base import errors
from builder.image import build, buildx, context, daemon, oci, render, rootfs, target
from builder.image.buildx import Step
from builder.lock import lockfile
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


def unreachable(step: Step) -> None:
    raise AssertionError(f"a build began: {step}")


def test_a_dockerfile_edited_by_hand_is_never_built(small: Small) -> None:
    path = small.project.dockerfile(TINY)
    path.write_text(path.read_text().replace("USER 1000:1000", "USER root"))
    for call in (build.build, build.prove):
        with pytest.raises(errors.VettedError, match="-USER root\n\\+USER 1000:1000") as caught:
            call(small.project, small.lock, small.scratch(), unreachable)
        assert caught.value.exit_code == 1
        assert caught.value.next_step == f"vetted render {TINY}"


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


EVENTS: list[dict[str, Any]] = [
    {
        "vertexes": [
            {"digest": "a", "name": "[base 1/1] ADD rootfs.tar /", "started": "1"},
            {"digest": "b", "name": "x"},
        ]
    },
    {"logs": [{"vertex": "a", "data": base64.b64encode(b"reading {files}\n").decode()}]},
    {"vertexes": [{"digest": "a", "completed": "2"}, {"digest": "b", "name": "[torch 1/1] RUN x", "started": "2"}]},
    {"vertexes": [{"digest": "b", "completed": "3", "error": "process did not complete: exit code: 1"}]},
]


@pytest.mark.parametrize("indent", [None, 1, 4])
def test_progress_is_read_in_one_line_or_in_many(indent: int | None) -> None:
    steps: list[Step] = []
    progress = buildx.Progress(steps.append)
    for event in EVENTS:
        for line in (json.dumps(event, indent=indent) + "\n").splitlines(keepends=True):
            progress.feed(line)
    assert steps == [Step(0, 2, "base"), Step(0, 2, "base"), Step(1, 2, "torch"), Step(2, 2, "")]
    assert "reading {files}\n" in progress.failure()
    assert "process did not complete: exit code: 1" in progress.failure()


def test_what_buildx_says_outside_of_its_events_is_part_of_the_failure() -> None:
    progress = buildx.Progress(unreachable)
    progress.feed("ERROR: failed to solve: no space left on device\n")
    assert "ERROR: failed to solve: no space left on device" in progress.failure()


def test_a_stage_is_shown_by_its_name(tmp_path: Path) -> None:
    assert buildx.stage(f"[torch 1/1] RUN --mount=type=bind {tmp_path}") == "torch"
    assert buildx.stage("exporting to image") == "exporting to image"
