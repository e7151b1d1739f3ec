"""What a machine says of itself, and how it reaches packages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builder.base import errors, machine
from builder.base.machine import Hardware


@pytest.fixture
def houses(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "one", tmp_path / "two"
    first.mkdir()
    second.mkdir()
    return first, second


def test_without_configuration_there_is_no_wheelhouse() -> None:
    assert machine.wheelhouse() is None
    assert machine.in_wheelhouse("torch", "1") is False
    assert "UV_FIND_LINKS" not in machine.uv_environment()


def test_the_tools_own_wheelhouse_comes_before_pips(houses: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = houses
    monkeypatch.setenv("PIP_FIND_LINKS", str(second))
    assert machine.wheelhouse() == second
    monkeypatch.setenv("VETTED_WHEELHOUSE", str(first))
    assert machine.wheelhouse() == first
    assert machine.uv_environment()["UV_FIND_LINKS"] == str(first)


def test_of_pips_places_the_first_folder_counts(houses: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", f"http://mirror.test/wheels /no/such/folder file://{houses[1]} {houses[0]}")
    assert machine.wheelhouse() == houses[1]


def test_a_wheelhouse_is_named_by_its_whole_path(houses: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(houses[0].parent)
    monkeypatch.setenv("VETTED_WHEELHOUSE", "one")
    assert machine.wheelhouse() == houses[0]


def test_a_wheelhouse_may_have_a_space_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my wheels").mkdir()
    monkeypatch.setenv("VETTED_WHEELHOUSE", str(tmp_path / "my wheels"))
    assert machine.wheelhouse() == tmp_path / "my wheels"


def test_a_wheel_is_found_by_name_and_whole_version(houses: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VETTED_WHEELHOUSE", str(houses[0]))
    (houses[0] / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    assert machine.in_wheelhouse("torch", "2.13.0+cpu")
    assert not machine.in_wheelhouse("torch", "2.13.0")
    assert not machine.in_wheelhouse("torch", "2.13")
    assert not machine.in_wheelhouse("orch", "2.13.0+cpu")


def test_a_wheelhouse_with_another_build_of_the_same_torch_is_left_out(
    houses: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VETTED_WHEELHOUSE", str(houses[0]))
    (houses[0] / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    assert "UV_FIND_LINKS" not in machine.uv_environment("2.13.0")
    for torch in ("2.13.0+cpu", "2.11.0", ""):
        assert machine.uv_environment(torch)["UV_FIND_LINKS"] == str(houses[0])


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"])
def test_the_index_is_the_one_the_machine_is_told_to_use(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert machine.index() is None
    monkeypatch.setenv("PIP_INDEX_URL", "http://mirror.test/pip")
    monkeypatch.setenv(name, "http://mirror.test/simple")
    assert machine.index() == "http://mirror.test/simple"
    assert machine.uv_environment()["UV_DEFAULT_INDEX"] == "http://mirror.test/simple"


def test_a_ca_bundle_counts_only_when_it_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.ca_bundle() is None
    bundle = tmp_path / "ca.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert machine.ca_bundle() is None
    bundle.touch()
    assert machine.ca_bundle() == bundle
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path))
    assert machine.ca_bundle() is None


def test_uv_fetches_no_python() -> None:
    assert machine.uv_environment()["UV_PYTHON_DOWNLOADS"] == "never"


def test_the_machine_names_its_processor_and_the_cores_it_may_use() -> None:
    hardware = machine.hardware("cpu")
    assert hardware.name
    assert hardware.cores == len(os.sched_getaffinity(0))
    assert hardware.gpus == ()
    assert hardware.hardware_class == f"{hardware.name}, {hardware.cores} cores"


def test_machines_of_one_class_share_gpus_and_driver() -> None:
    gpus = ("Some GPU", "Some GPU")
    first, second = Hardware("CPU 1", 4, gpus, "570.1"), Hardware("CPU 2", 8, gpus, "570.1")
    assert first.hardware_class == second.hardware_class == "2x Some GPU, driver 570.1"


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A driver's tool that says what a machine with GPUs, or with a broken driver, says."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


TWO = "printf 'Some GPU, 570.1, GPU-aa\\nOther GPU, 570.1, GPU-bb\\n'"


def test_gpus_are_named_with_their_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvidia_smi(tmp_path, monkeypatch, TWO)
    hardware = machine.hardware("cuda")
    assert (hardware.gpus, hardware.driver) == (("Some GPU", "Other GPU"), "570.1")
    assert machine.hardware("cpu").gpus == ()


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [("1", ("Other GPU",)), ("GPU-aa", ("Some GPU",)), ("1,0", ("Other GPU", "Some GPU")), ("0,7,1", ("Some GPU",))],
)
def test_a_certificate_names_the_gpus_that_are_visible(
    visible: str, gpus: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    nvidia_smi(tmp_path, monkeypatch, TWO)
    assert machine.hardware("cuda").gpus == gpus


@pytest.mark.parametrize("visible", ["", "7", "GPU-cc", "-1"])
def test_no_visible_gpu_is_an_error(visible: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    nvidia_smi(tmp_path, monkeypatch, TWO)
    with pytest.raises(errors.MissingToolError, match=f"(?s)none that is visible.*is '{visible}'"):
        machine.hardware("cuda")


def test_a_driver_that_does_not_answer_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(tmp_path, monkeypatch, "echo 'NVIDIA-SMI has failed'; exit 9")
    with pytest.raises(errors.VettedError, match="listing the GPUs failed\nNVIDIA-SMI has failed"):
        machine.hardware("cuda")


def test_a_machine_without_gpus_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.MissingToolError, match="nvidia-smi is not installed"):
        machine.hardware("cuda")
