"""Installations that build a package, and fail."""

from __future__ import annotations

import pytest

from doctor.answer import diagnose
from doctor.checks import building
from doctor.finding import Finding
from tests.unit.doctor.kit import reported

PIP_OLD = "Building wheels for collected packages: flash-attn\nERROR: Failed building wheel for flash_attn\n"
PIP_NEW = "ERROR: Failed to build installable wheels for some pyproject.toml based projects (flash-attn)\n"
PIP_METADATA = """Collecting flash-attn==2.5.8
  Using cached flash_attn-2.5.8.tar.gz (2.5 MB)
error: subprocess-exited-with-error
× Getting requirements to build wheel did not run successfully.
"""
UV = "  × Failed to build `flash-attn==2.7.4.post1`\n  ├─▶ The build backend returned an error\n"
NO_TORCH = "      ModuleNotFoundError: No module named 'torch'\n"


def first(packages: dict[str, str], error: str) -> Finding:
    return diagnose.findings(reported(packages, error))[0]


@pytest.mark.parametrize(
    ("log", "name"),
    [
        (PIP_OLD, "flash-attn"),
        (PIP_NEW, "flash-attn"),
        (PIP_METADATA, "flash-attn"),
        (UV, "flash-attn"),
        ("  × Failed to download and build `mamba-ssm==2.2.4`\n", "mamba-ssm"),
        ("ERROR: Could not build wheels for deepspeed, which is required to install\n", "deepspeed"),
        ("ERROR: Failed to build 'flash-attn' when getting requirements to build wheel\n", "flash-attn"),
        (PIP_METADATA.replace("flash-attn==2.5.8", "git+https://github.com/Dao-AILab/flash-attention.git"), None),
        (PIP_METADATA.replace("error:", "Processing ./my_extension\nerror:"), None),
        ("Successfully built trl\n", None),
        ("Failed to build the model from the config\n", None),
    ],
)
def test_the_package_whose_build_failed_is_found(log: str, name: str | None) -> None:
    assert building.failed(log) == name


@pytest.mark.parametrize("log", [PIP_METADATA + NO_TORCH, UV + NO_TORCH])
def test_a_build_in_isolation_lacks_the_torch_that_is_installed(log: str) -> None:
    finding = first({"torch": "2.6.0"}, log)
    assert (finding.rule, finding.confidence) == ("build-isolation", "likely")
    assert finding.commands == ["uv pip install --no-build-isolation 'flash-attn>=2.7.4,<=2.7.4.post1'"]
    assert "absent-module" not in {each.rule for each in diagnose.findings(reported({}, log))}


def test_what_else_a_build_lacks_is_installed_first() -> None:
    finding = first({"torch": "2.6.0"}, UV + "ModuleNotFoundError: No module named 'psutil'\n")
    assert finding.commands[0] == "uv pip install psutil"


def test_without_isolation_a_missing_torch_is_missing() -> None:
    log = f"$ pip install flash-attn --no-build-isolation\n{PIP_METADATA}{NO_TORCH}"
    assert first({"trl": "1.16.0"}, log).rule == "absent-module"


@pytest.mark.parametrize("torch", ["2.6.0+cpu", "2.6.0+rocm6.2"])
def test_only_a_torch_for_cuda_has_wheels_of_flash_attn(torch: str) -> None:
    assert "has a wheel" not in " ".join(first({"torch": torch, "flash-attn": "2.5.8"}, PIP_OLD).remedy)


def test_a_missing_torch_without_a_build_is_a_missing_torch() -> None:
    assert first({"trl": "1.16.0"}, NO_TORCH.strip()).rule == "absent-module"


def test_a_release_with_a_wheel_is_better_than_a_build() -> None:
    finding = first({"torch": "2.6.0", "flash-attn": "2.5.8"}, PIP_OLD)
    assert (finding.rule, finding.confidence) == ("no-wheel", "likely")
    assert finding.commands[0].endswith("--reinstall-package flash-attn 'flash-attn>=2.7.4,<=2.7.4.post1'")
    assert first({"flash-attn": "2.5.8"}, PIP_OLD).confidence == "possible"


def test_a_killed_compiler_gets_fewer_jobs() -> None:
    log = "c++: fatal error: Killed signal terminated program cc1plus\n" + PIP_OLD
    finding = first({"torch": "2.6.0"}, log)
    assert finding.rule == "build-memory"
    assert finding.remedy[0].startswith("set MAX_JOBS=2")
