"""The stack for a machine: what `vetted use` takes without a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base import errors, machine
from builder.base.machine import Gpu
from builder.base.project import Project
from builder.certify import choice, standing
from tests.conftest import ROOT

PROJECT = Project(ROOT)


def listing(folder: Path, monkeypatch: pytest.MonkeyPatch, *rows: str) -> None:
    """An nvidia-smi for a GPU that is not there."""
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\ncat <<'END'\n" + "".join(f"{row}\n" for row in rows) + "END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_gpus_are_listed_with_driver_capability_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ("NVIDIA H200, 580.95.05, 9.0, 143771 MiB, GPU-a", "NVIDIA GB10, 580.95.05, 12.1, [N/A], GPU-b")
    listing(tmp_path, monkeypatch, *rows)
    h200, shared = Gpu("NVIDIA H200", "580.95.05", (9, 0), 143771), Gpu("NVIDIA GB10", "580.95.05", (12, 1))
    assert machine.gpus() == [h200, shared]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
    assert machine.gpus() == [shared]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.gpus() == []


@pytest.mark.parametrize("row", ["", "NVIDIA H200, 470.1, [N/A], 143771 MiB, GPU-a", "no devices were found"])
def test_an_answer_that_lists_no_gpu_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    listing(tmp_path, monkeypatch, row)
    assert machine.gpus() == []


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        (Gpu("NVIDIA H200", "580.95.05", (9, 0), 143771), "trl1.16-cu130"),
        (Gpu("NVIDIA H200", "550.54.15", (9, 0)), "trl1.13-cu128"),
        (Gpu("NVIDIA GeForce RTX 5090", "580.95.05", (12, 0)), "trl1.16-cu130"),
        (Gpu("Tesla V100", "580.95.05", (7, 0)), "trl1.13-cu128"),
        (Gpu("Tesla K80", "580.95.05", (3, 7)), None),
        (Gpu("NVIDIA H200", "470.82.01", (9, 0)), None),
    ],
)
def test_the_newest_stack_that_the_gpu_and_its_driver_run_is_chosen(
    monkeypatch: pytest.MonkeyPatch, gpu: Gpu, name: str | None
) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: [gpu])
    monkeypatch.setattr(machine, "hardware", lambda _device: machine.Hardware("x", 1, (gpu.name,), gpu.driver))
    monkeypatch.setattr(standing, "certified_on", lambda _project, _lock: [])
    if name is None:
        with pytest.raises(errors.BadInputError) as error:
            choice.choose(PROJECT)
        assert gpu.name in str(error.value)
        assert "trl1.16-cu130: " in str(error.value)
    else:
        chosen = choice.choose(PROJECT)
        assert chosen.name == name
        assert chosen.reason.startswith(f"{gpu.name} (140 GiB), " if gpu.memory_mib else f"{gpu.name}, ")


H200, T4 = Gpu("NVIDIA H200", "580.95.05", (9, 0)), Gpu("Tesla T4", "580.95.05", (7, 5))


@pytest.mark.parametrize(
    ("here", "places", "name", "reason"),
    [
        ([H200], {}, "trl1.16-cu130", "the newest that fits; not certified for it yet"),
        (
            [H200],
            {
                "trl1.13-cu128": ["1x NVIDIA H200, driver 580.95.05 (image)"],
                "trl1.16-torch2.11-cu130": ["1x NVIDIA H200, driver 580.95.05 (lock)"],
            },
            "trl1.13-cu128", "it is certified for this hardware",
        ),
        (
            [H200],
            {
                "trl1.13-cu128": ["1x NVIDIA H200, driver 580.95.05 (lock)"],
                "trl1.16-torch2.11-cu130": ["2x NVIDIA H200, driver 580.95.05 (image)"],
            },
            "trl1.13-cu128", "its lock is certified for this hardware, and its image is not",
        ),
        (
            [H200, H200],
            {"trl1.13-cu128": ["1x NVIDIA H200, driver 580.159.04 (lock)"], "trl1.16-cu130": ["Xeon, 2 cores (image)"]},
            "trl1.13-cu128",
            "its lock is certified on 1x NVIDIA H200, driver 580.159.04; not certified for this machine",
        ),
        (
            [H200], {"trl1.13-cu128": ["1x NVIDIA H200, driver 570.1 (lock)", "1x NVIDIA H200, driver 575 (image)"]},
            "trl1.13-cu128", "certified on 1x NVIDIA H200, driver 575; not certified for this machine",
        ),
        (
            [H200, T4],
            {"trl1.13-cu128": ["4x NVIDIA H200 + 1x Tesla T4, driver 580.1 (image)"]},
            "trl1.13-cu128",
            "certified on 4x NVIDIA H200 + 1x Tesla T4, driver 580.1; not certified for this machine",
        ),
        (
            [H200, T4],
            {"trl1.13-cu128": ["1x NVIDIA H200, driver 580.1 (image)", "1x Tesla T4, driver 580.1 (image)"]},
            "trl1.16-cu130", "the newest that fits; not certified for it yet",
        ),
        (
            [Gpu("NVIDIA H20", "580.95.05", (9, 0))], {"trl1.13-cu128": ["1x NVIDIA H200, driver 5 (image)"]},
            "trl1.13-cu128",
            "certified on 1x NVIDIA H200, driver 5, also of compute capability 9.0; not certified for this machine",
        ),
        (
            [H200],
            {
                "trl1.13-cu128": ["1x NVIDIA H200, driver 570.1 (lock)"],
                "trl1.16-torch2.11-cu130": ["1x NVIDIA H100 80GB HBM3, driver 580.159.04 (image)"],
            },
            "trl1.13-cu128", "its lock is certified on 1x NVIDIA H200, driver 570.1; not certified for this machine",
        ),
        (
            [Gpu("NVIDIA A100-SXM4-80GB", "580.95.05", (8, 0))],
            {"trl1.13-cu128": ["1x NVIDIA H200, driver 580.1 (image)", "1x NVIDIA Made-Up, driver 580.1 (image)"]},
            "trl1.16-cu130", "the newest that fits; not certified for it yet",
        ),
        (
            [H200], {"trl1.13-cu128": ["1x NVIDIA Made-Up, driver 580.1 (image)"]},
            "trl1.16-cu130", "the newest that fits; not certified for it yet",
        ),
    ],
)  # fmt: skip
def test_what_is_certified_nearest_to_the_machine_goes_first(
    monkeypatch: pytest.MonkeyPatch, here: list[Gpu], places: dict[str, list[str]], name: str, reason: str
) -> None:
    names = tuple(gpu.name for gpu in here)
    monkeypatch.setattr(machine, "gpus", lambda: here)
    monkeypatch.setattr(machine, "hardware", lambda _device: machine.Hardware("x", 1, names, here[0].driver))
    monkeypatch.setattr(standing, "certified_on", lambda _project, lock: places.get(lock.name, []))
    chosen = choice.choose(PROJECT)
    assert (chosen.name, chosen.reason.partition(": ")[2]) == (name, reason)


def test_a_machine_without_a_gpu_gets_the_cpu_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "gpus", list)
    assert choice.choose(PROJECT) == choice.Choice("trl1.16-cpu", "no NVIDIA GPU is visible here")
