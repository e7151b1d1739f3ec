"""The machine: its driver, its compilers, the errors of its loader."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.read import machine
from doctor.read.machine import Machine
from tests.unit.doctor.kit import first, install, of, reported, rules


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        ("flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs", "built-for-another-torch"),
        ("RuntimeError: operator torchvision::nms does not exist", "built-for-another-torch"),
        (
            "ImportError: /v/x.so: version `GLIBC_2.34' not found (required by /v/site-packages/vllm/_C.abi3.so)",
            "system-library",
        ),
        ("libtorch_cuda.so: undefined symbol: ncclCommWindowRegister", "nccl"),
        ("libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12", "nvjitlink"),
        ("ValueError: numpy.dtype size changed, may indicate binary incompatibility", "numpy-abi"),
        ("ImportError: libcudart.so.13: cannot open shared object file: No such file or directory", "cuda-runtime"),
        ("ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory", "cuda-runtime"),
        ("fatal error: Python.h: No such file or directory", "python-headers"),
        ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "c-compiler"),
        ("deepspeed.ops.op_builder.builder.MissingCUDAException: CUDA_HOME does not exist", "nvcc"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 12080).", "cuda-driver"),
        ("libbitsandbytes_cuda130.so: cannot open shared object file", "bitsandbytes-binary"),
    ],
)
def test_an_error_of_the_loader_or_the_compiler_is_known(error: str, rule: str) -> None:
    others = {"flash-attn": "2.7.4", "torchvision": "0.23.0"}
    finding = first(reported({"torch": "2.8.0", **others}, error))
    assert (finding.rule, finding.sure) == (rule, True)


def test_the_sizes_in_the_error_say_for_which_numpy_a_package_was_built() -> None:
    """With NumPy 1 installed, "numpy<2" was the answer to a package that was built for NumPy 2."""
    error = (
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected {} from C header, got {}"
    )
    newer = first(reported({"numpy": "1.26.4"}, error.format(96, 88)))
    older = first(reported({"numpy": "2.1.0"}, error.format(88, 96)))
    assert (newer.rule, older.rule) == ("numpy-abi", "numpy-abi")
    assert "numpy>=2" in newer.remedy[0] and "numpy<2" in older.remedy[0]
    array = error.replace("dtype", "ndarray")
    assert "a newer numpy" in first(reported({"numpy": "1.21.6"}, array.format(96, 88))).remedy[0]
    assert "a newer numpy" in first(reported({"numpy": "1.19.5"}, array.format(88, 80))).remedy[0]


def test_operators_of_vllm_that_are_missing_were_built_for_another_torch() -> None:
    error = "AttributeError: '_OpNamespace' '_C' object has no attribute 'rms_norm'"
    finding = first(reported({"vllm": "0.6.3", "torch": "2.5.1"}, error))
    assert (finding.rule, finding.packages) == ("built-for-another-torch", {"vllm": "0.6.3", "torch": "2.5.1"})
    assert finding.commands == ["uv pip install --torch-backend=auto 'torch==2.4.0'"]
    # Beside the torch that it pins, something else is missing.
    unsure = first(reported({"vllm": "0.6.3", "torch": "2.4.0"}, error))
    assert (finding.confidence, unsure.confidence) == ("likely", "possible")
    traceback = "File vllm/attention/backends/flash_attn.py\n" + error.replace("rms_norm", "reshape_and_cache_flash")
    assert list(first(reported({"torch": "2.4.0", "flash-attn": "2.6.3"}, traceback)).packages) == ["vllm", "torch"]


def test_a_library_that_tensorflow_does_without_is_no_cause() -> None:
    library = "libcudart.so.11.0"
    warning = f"Could not load dynamic library '{library}'; dlerror: {library}: cannot open shared object file: No such"
    torch = {"torch": "2.1.0+cu121"}
    assert "cuda-runtime" not in rules(reported(torch, f"{warning}\nValueError: a problem of its own"))
    real = first(reported(torch, f"{warning}\nImportError: {library}: cannot open shared object file"))
    assert (real.rule, real.packages) == ("cuda-runtime", torch)
    assert real.title == "something was built for CUDA 11, torch for CUDA 12.1"


def test_a_machine_with_a_gpu_and_nothing_to_compile_with(tmp_path: Path) -> None:
    install(tmp_path, "triton", "3.4.0")
    bare = Machine(driver="580.1", gpus=1, headers=False, inspected=True)
    assert {"python-headers", "c-compiler"} <= set(rules(of(tmp_path, machine=bare)))
    full = Machine(driver="580.1", gpus=1, headers=True, compiler="/usr/bin/cc", nvcc="/x/nvcc", inspected=True)
    assert rules(of(tmp_path, machine=full)) == []


def test_the_machine_is_read_from_proc(tmp_path: Path) -> None:
    nvidia = tmp_path / "proc" / "driver" / "nvidia"
    (nvidia / "gpus" / "0000:01:00.0").mkdir(parents=True)
    (nvidia / "version").write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release\n")
    (nvidia / "gpus" / "0000:01:00.0" / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 1\n")
    result = machine.inspect(None, tmp_path)
    assert (result.driver, result.gpus, result.gpu_models) == ("570.86.10", 1, ("NVIDIA H200",))
    (nvidia / "version").write_bytes(b"\xff\xfe\x00" * 100)
    assert machine.inspect(None, tmp_path).driver is None
