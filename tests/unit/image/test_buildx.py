"""The progress of buildx: how its events are read, and what a failure shows."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from builder.base import errors
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


UNBUILT = """\
    from torch.utils.cpp_extension import BuildExtension
ModuleNotFoundError: No module named 'torch'
error: Failed to build `/mnt/wheels/flash_attn-2.8.3.post2.tar.gz`
  cause: The build backend returned an error
  cause: Call to `setuptools.build_meta:__legacy__.get_requires_for_build_wheel` failed (exit status: 1)

hint: This error likely indicates that it depends on `torch`
Dockerfile:147
--------------------
 146 |     FROM base AS own-wheels
ERROR: failed to solve: process "/bin/sh -c export PYTHONHASHSEED=0; cd /mnt/wheels" did not complete successfully
"""


def test_a_source_distribution_that_cannot_be_built_is_named_with_what_its_build_said() -> None:
    """Measured: flash-attn beside the CPU stack ended in BuildKit's words, and with the advice to look at Docker."""
    error = buildx.failed("mine", UNBUILT)
    assert isinstance(error, errors.BadInputError)
    assert error.what.startswith("mine: flash_attn-2.8.3.post2.tar.gz cannot be built in the image\n")
    assert error.what.endswith("\nModuleNotFoundError: No module named 'torch'")
    assert error.next_step.startswith("build a wheel of it")


def test_another_failure_of_a_build_is_told_by_its_end() -> None:
    error = buildx.failed("mine", "no space left on device")
    assert isinstance(error, errors.StorageError)
    assert "docker info" in buildx.failed("mine", "process did not complete: exit code: 1").next_step
