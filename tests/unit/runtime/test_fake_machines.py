"""What use, compose and preflight say on machines that do not exist, with the fake driver of tests/gpu."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base.project import Project
from builder.lock import lockfile
from builder.pages import evidence, fakes
from tests import parts
from tests.gpu import machines, stub
from tests.gpu.__main__ import STACK, row
from tests.gpu.machines import FAKES, Fake, Said


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts.plugin("compose")
    return stub.libraries(tmp_path_factory.mktemp("driver") / "libraries")


def answers(real: Project, fake: Fake, libraries: Path, folder: Path) -> Said:
    return machines.answers(real, lockfile.load(real, STACK), fake, libraries, folder / "asked")


@pytest.mark.parametrize("fake", FAKES, ids=lambda fake: fake.title)
def test_the_documents_show_what_is_said_today(fake: Fake, real: Project, libraries: Path, tmp_path: Path) -> None:
    record = evidence.read(real, fakes.FakeGpus)
    assert record is not None
    (shown,) = [machine for machine in record.machines if machine.title == fake.title]
    assert shown.model_dump() == row(fake, answers(real, fake, libraries, tmp_path)), "python -m tests.gpu --record"


def test_of_several_gpus_every_one_must_fit(real: Project, libraries: Path, tmp_path: Path) -> None:
    fake = Fake("two", gpus=(stub.H200, stub.V100), visible="0,1")
    words = answers(real, fake, libraries, tmp_path)
    assert words.chosen == "trl1.13-cu128" and words.compose["visible"] == "0,1"
    (stop,) = [line for level, line in words.preflight if level == "stop"]
    assert "no kernels for Tesla V100-SXM2-32GB (compute capability 7.0)" in stop


def test_the_other_gpu_of_a_mixed_machine_is_not_seen(real: Project, libraries: Path, tmp_path: Path) -> None:
    words = answers(real, Fake("two", gpus=(stub.H200, stub.V100), visible="0"), libraries, tmp_path)
    assert str(words.chosen).startswith("trl1.16-")  # its kernels run on the H200 alone
    assert [level for level, _ in words.preflight] == ["ok", "ok"]


def test_a_gpu_that_no_stack_runs_is_refused_with_the_reasons(real: Project, libraries: Path, tmp_path: Path) -> None:
    words = answers(real, Fake("old", gpus=("Tesla K80|3|7|11441",)), libraries, tmp_path)
    assert words.chosen is None
    assert words.reason.startswith(
        "no CUDA stack fits Tesla K80 (11 GiB) with driver 580.95.05\ntrl0.15-cu124: no kernels"
    )
