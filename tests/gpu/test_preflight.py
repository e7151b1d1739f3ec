"""Preflight in the image of the newest stack for CUDA: what the documents show of another one holds there, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builder.base.project import Project
from builder.image import context
from builder.lock import lockfile
from builder.pages import evidence, fakes
from tests import parts
from tests.gpu import machines, stub
from tests.gpu.machines import FAKES, Fake

NEWEST = "trl1.16-cu130"
HOPPER = [fake for fake in FAKES if fake.gpus and set(fake.gpus) == {stub.H200}]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts.plugin("compose")
    return stub.libraries(tmp_path_factory.mktemp("driver") / "libraries")


@pytest.mark.parametrize("fake", HOPPER, ids=lambda fake: fake.title)
def test_it_says_the_same_on_an_h200(fake: Fake, real: Project, libraries: Path, tmp_path: Path) -> None:
    lock, record = lockfile.load(real, NEWEST), evidence.read(real, fakes.FakeGpus)
    assert record is not None and record.stack != lock.name
    (shown,) = [machine for machine in record.machines if machine.title == fake.title]
    checks = machines.preflight(real, lock, fake, libraries, tmp_path / "asked")
    assert checks == [(check.level, check.says) for check in shown.preflight]


def test_its_image_names_the_kernels_that_are_compared(real: Project) -> None:
    described: Any = context.description(real, lockfile.load(real, NEWEST))
    needed = described["kernels"]["needed"]
    assert needed.keys() == {"torch", "vllm"} and all("sm_90" in names for names in needed.values())


def test_a_v100_is_stopped(real: Project, libraries: Path, tmp_path: Path) -> None:
    (fake,) = [fake for fake in FAKES if fake.gpus == (stub.V100,)]
    checks = machines.preflight(real, lockfile.load(real, NEWEST), fake, libraries, tmp_path / "asked")
    (stop,) = [line for level, line in checks if level == "stop"]
    assert "no kernels for Tesla V100-SXM2-32GB (compute capability 7.0)" in stop
