"""torch, CUDA libraries, bitsandbytes and drivers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from doctor.answer import diagnose
from doctor.read.machine import Machine
from tests.unit.doctor.kit import first, install, of, only, reported, rules


def test_a_driver_of_cuda_12_does_not_run_a_torch_of_cuda_13() -> None:
    finding = first(reported({"torch": "2.11.0"}, machine=Machine(driver="570.86.10")))
    assert (finding.rule, finding.confidence) == ("cuda-driver", "certain")
    for packages, driver in (
        ({"torch": "2.11.0"}, "580.65"),
        ({"torch": "2.10.0"}, "535.1"),
        ({"torch": "2.13.0+cpu"}, "470.1"),
        ({"torch": "2.11.0+cu128"}, "570.86"),
    ):
        assert "cuda-driver" not in rules(reported(packages, machine=Machine(driver=driver)))


def test_torchs_cuda_is_read_from_its_own_file_before_it_is_guessed(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.11.0", files={"torch/version.py": b"cuda: Optional[str] = '12.8'\n"})
    assert "cuda-driver" not in rules(of(tmp_path, machine=Machine(driver="570.1")))


def test_libraries_of_two_cudas_are_seen(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.13.0")
    install(tmp_path, "nvidia-cublas", "13.1.0.3")
    install(tmp_path, "nvidia-cublas-cu12", "12.8.4.1")
    finding = only(of(tmp_path), "two-cudas")
    assert finding.packages == {"nvidia-cublas-cu12": "12.8.4.1"}
    assert finding.commands == ["uv pip uninstall nvidia-cublas-cu12"]


@pytest.mark.parametrize(
    ("version", "binaries", "missing"),
    [
        ("0.46.0", ("118", "126"), True),
        ("0.48.0", ("126", "130"), False),
        ("0.50.2", ("126", "132"), True),
        ("0.50.2", ("128", "130"), False),
        ("0.47.0", (), True),
        ("0.48.2", (), False),
    ],
)
def test_bitsandbytes_without_a_binary_for_torchs_cuda(
    tmp_path: Path, version: str, binaries: Sequence[str], missing: bool
) -> None:
    install(tmp_path, "torch", "2.13.0")
    files = {f"bitsandbytes/libbitsandbytes_cuda{number}.so": b"" for number in binaries}
    install(tmp_path, "bitsandbytes", version, files=files)
    assert ("bitsandbytes-binary" in rules(of(tmp_path))) is missing


def test_torchvision_of_another_torch_or_another_variant() -> None:
    assert (
        only(reported({"torch": "2.13.0+cpu", "torchvision": "0.28.0+cu130"}), "torch-family").confidence == "certain"
    )
    finding = only(reported({"torch": "2.6.0", "torchvision": "0.20.1"}), "torch-family")
    assert finding.commands == [
        "uv pip install --torch-backend=auto --reinstall-package torchvision 'torchvision==0.21.*'"
    ]
    assert "torch-family" not in rules(reported({"torch": "2.6.0", "torchvision": "0.21.0", "torchaudio": "2.6.0"}))


def test_a_library_that_the_default_torch_brings_and_that_is_missing_means_another_torch() -> None:
    error = "ImportError: libcudart.so.12: cannot open shared object file"
    assert first(reported({"vllm": "0.16.0", "torch": "2.9.1"}, error)).rule == "cuda-runtime"
    rules = {finding.rule for finding in diagnose.findings(reported({"vllm": "0.16.0", "torch": "2.9.1+cu128"}, error))}
    assert "cuda-runtime" not in rules


OLD = "The NVIDIA driver on your system is too old (found version {})."


@pytest.mark.parametrize(
    ("packages", "cuda", "confidence", "command"),
    [
        ({"torch": "2.11.0"}, 12080, "certain", "--torch-backend=cu126 --reinstall-package torch torch==2.11.0"),
        ({"torch": "2.8.0"}, 11040, "certain", "--torch-backend=cu118 --reinstall-package torch 'torch>=2.0,<2.8'"),
        ({"torch": "2.6.0"}, 11040, "certain", "--torch-backend=cu118 --reinstall-package torch torch==2.6.0"),
        ({}, 11040, "possible", "--torch-backend=cu118 --reinstall-package torch 'torch>=2.0,<2.8'"),
        ({}, 12020, "possible", "--torch-backend=cu126 --reinstall-package torch 'torch>=2.6,<2.15'"),
        ({"vllm": "0.21.0"}, 12080, "certain", "'vllm<0.20'"),
    ],
)
def test_a_driver_that_is_too_old_gets_the_torch_that_is_built_for_its_cuda(
    packages: dict[str, str], cuda: int, confidence: str, command: str
) -> None:
    finding = only(reported(packages, OLD.format(cuda)), "cuda-driver")
    assert (finding.confidence, finding.commands) == (confidence, [f"uv pip install {command}"])
    assert bool(finding.decide) == (confidence == "possible")


def test_the_gpu_is_the_machines_or_else_the_one_that_the_log_names() -> None:
    error = "RuntimeError: CUDA error: no kernel image is available for execution on the device"

    def confidence(log: str, machine: Machine) -> str:
        found = diagnose.findings(reported({"torch": "2.11.0"}, f"{log}\n{error}", machine=machine))
        return next((finding.confidence for finding in found if finding.rule == "VETTED-0118"), "")

    volta = Machine(gpus=1, gpu_models=("Tesla V100-SXM2-32GB",))
    assert confidence("GPU 0: NVIDIA H100 80GB HBM3", Machine()) == ""
    assert confidence("GPU 0: Tesla V100-SXM2-32GB", Machine()) == "certain"
    assert confidence("GPU 0: NVIDIA H100 80GB HBM3", volta) == "certain"
