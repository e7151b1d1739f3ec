"""Modules that are not there, names outside the releases that were read, and the wheels of extensions."""

from __future__ import annotations

import pytest

from doctor.answer import diagnose
from doctor.finding import Finding
from doctor.know import cuda
from tests.unit.doctor.kit import first, only, reported, rules

NO_MODULE = "ModuleNotFoundError: No module named '{}'"


def test_a_distribution_that_is_known_is_installed() -> None:
    finding = only(reported({}, NO_MODULE.format("flash_attn")), "absent-module")
    assert (finding.confidence, finding.commands) == ("possible", ["uv pip install 'flash-attn'"])
    case = reported({"trl": "1.0.0"}, NO_MODULE.format("deepspeed"))
    case.environment.complete = True
    assert only(case, "absent-module").confidence == "likely"


@pytest.mark.parametrize("module", ["my_rewards", "vllm_ascend", "trl.trainer", "reward_utils"])
def test_a_module_that_may_be_the_users_own_is_no_finding(module: str) -> None:
    assert "absent-module" not in rules(reported({}, NO_MODULE.format(module)))


def test_a_module_of_what_is_installed_is_not_absent() -> None:
    assert "absent-module" not in rules(reported({"deepspeed": "0.16.0"}, NO_MODULE.format("deepspeed")))


@pytest.mark.parametrize(
    ("packages", "remedy"),
    [
        ({}, "diffusers>=0.27.0"),
        ({"diffusers": "0.20.0"}, "diffusers>=0.27.0"),
        ({"diffusers": "0.30.0"}, "diffusers<0.27.0"),
        ({"diffusers": "99.0"}, "install versions of"),
    ],
)
def test_a_name_without_a_date_is_outside_the_releases_that_were_read(packages: dict[str, str], remedy: str) -> None:
    error = "ImportError: cannot import name 'convert_state_dict_to_nothing' from 'diffusers.utils'"
    finding = first(reported(packages, error))
    assert (finding.rule, finding.confidence) == ("missing-name", "possible")
    assert finding.remedy[0].startswith(remedy)


UNDEFINED = "ImportError: /x/{}: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs"


def of(packages: dict[str, str], file: str) -> Finding:
    return only(reported(packages, UNDEFINED.format(file)), "built-for-another-torch")


def test_flash_attn_is_installed_in_a_release_with_a_wheel_for_this_torch() -> None:
    finding = of({"flash-attn": "2.5.7", "torch": "2.3.0"}, "flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so")
    assert finding.remedy[0] == "flash-attn>=2.5.8,<=2.7.4.post1, which has a wheel for torch 2.3.0"
    assert finding.commands == [
        "uv pip install --no-build-isolation --reinstall-package flash-attn 'flash-attn>=2.5.8,<=2.7.4.post1'"
    ]
    old = of({"flash-attn": "2.5.7", "torch": "2.13.0"}, "flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so")
    assert old.commands == ["uv pip uninstall flash-attn"]
    assert cuda.flash_attn_for("") is cuda.flash_attn_for("2.99.0") is None


def test_an_extension_that_declares_its_torch_gets_that_torch() -> None:
    finding = of({"vllm": "0.8.5", "torch": "2.7.0"}, "vllm/_C.abi3.so")
    assert finding.remedy[0] == "torch==2.6.0, which vllm 0.8.5 was built with"
    assert finding.commands == ["uv pip install --torch-backend=auto 'torch==2.6.0'"]
    assert of({"vllm": "0.8.5", "torch": "2.6.0"}, "vllm/_C.abi3.so").commands == []
    unknown = of({"torch": "2.6.0+cu124"}, "vllm/_C.abi3.so")
    assert unknown.remedy[0] == "vllm==0.8.5.post1, which is built with torch 2.6.0+cu124"
    assert of({}, "vllm/_C.abi3.so").remedy == of({"torch": "1.0"}, "vllm/_C.abi3.so").remedy


def test_a_file_says_which_extension_it_is_of() -> None:
    finding = of({"sgl-kernel": "0.1.1", "torch": "2.5.1"}, "common_ops.abi3.so")
    assert (finding.packages, finding.commands) == ({"sgl-kernel": "0.1.1", "torch": "2.5.1"}, [])


@pytest.mark.parametrize(
    "error",
    [
        "MissingCUDAException: CUDA_HOME does not exist, unable to compile CUDA op(s)",
        "x.cu:3:10: fatal error: curand_kernel.h: No such file or directory",
        "fatal error: Python.h: No such file or directory",
        "libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12",
    ],
)
def test_what_is_around_the_packages_is_no_fault_of_their_versions(error: str) -> None:
    finding = first(reported({"torch": "2.1.0"}, error))
    assert finding.sure and finding.setting


@pytest.mark.parametrize("error", ["'AdamW' object has no attribute 'train'", "'list' object has no attribute 'keys'"])
def test_a_member_of_an_optimizer_or_of_a_list_is_no_models(error: str) -> None:
    findings = diagnose.findings(reported({"transformers": "4.45.0"}, f"AttributeError: {error}"))
    assert "moved-name" not in [finding.rule for finding in findings]


def test_a_changed_signature_names_the_release_before() -> None:
    error = "TypeError: GRPOTrainer._get_train_sampler() takes 1 positional argument but 2 were given"
    finding = only(reported({"trl": "0.16.0", "transformers": "4.52.1"}, error), "signature")
    assert finding.remedy[0].startswith("transformers<4.52.1, or a later release")


def test_a_minimum_in_the_words_of_sglang() -> None:
    error = "Exception: flashinfer_python with minimum required version 0.2.5 is not installed."
    finding = first(reported({}, error))
    assert finding.commands == ["uv pip install 'flashinfer-python>=0.2.5'"]


@pytest.mark.parametrize(
    ("error", "packages", "command"),
    [
        ("liger-kernel >= 0.3.0 is not there. Please install it with `pip install liger-kernel`", {}, "liger-kernel"),
        ("run `pip install -U bitsandbytes>=0.46.1`", {"bitsandbytes": "0.45.0"}, "bitsandbytes>=0.46.1"),
        ("run `pip install -U bitsandbytes>=0.46.1`", {"bitsandbytes": "0.47.0"}, ""),
        ("Please run pip install trl[vllm]", {"trl": "0.20.0"}, ""),
    ],
)
def test_what_the_error_says_to_install_is_repeated_only_where_it_changes_something(
    error: str, packages: dict[str, str], command: str
) -> None:
    findings = [
        finding
        for finding in diagnose.findings(reported(packages, f"ImportError: {error}"))
        if finding.rule == "advised"
    ]
    assert [finding.commands for finding in findings] == ([[f"uv pip install '{command}'"]] if command else [])
