"""The progress of buildx: how its events are read, and what a failure shows."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from builder.image import buildx
from builder.image.buildx import BuildStep
from tests.unit.image.test_build import unreachable

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
    steps: list[BuildStep] = []
    progress = buildx.Progress(steps.append)
    for event in EVENTS:
        for line in (json.dumps(event, indent=indent) + "\n").splitlines(keepends=True):
            progress.feed(line)
    assert steps == [BuildStep(0, 2, "base"), BuildStep(0, 2, "base"), BuildStep(1, 2, "torch"), BuildStep(2, 2, "")]
    assert "reading {files}\n" in progress.failure()
    assert "process did not complete: exit code: 1" in progress.failure()


def test_what_buildx_says_outside_of_its_events_is_part_of_the_failure() -> None:
    progress = buildx.Progress(unreachable)
    progress.feed("ERROR: failed to solve: no space left on device\n")
    assert "ERROR: failed to solve: no space left on device" in progress.failure()


def test_a_stage_is_shown_by_its_name(tmp_path: Path) -> None:
    assert buildx.stage(f"[torch 1/1] RUN --mount=type=bind {tmp_path}") == "torch"
    assert buildx.stage("exporting to image") == "exporting to image"
