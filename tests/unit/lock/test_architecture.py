"""Which GPU runs which kernels: the rules, and what users reported."""

from __future__ import annotations

import itertools

import pytest

from builder.lock import architecture, gpus
from builder.lock.architecture import Capability, Verdict
from runtime import capability

CU12 = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
CU118 = "sm_37 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
CU117 = "sm_37 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86"
CU102 = "sm_37 sm_50 sm_60 sm_70 sm_75"
CUDA9 = "sm_37 sm_50 sm_60 sm_70"
ISSUES = "https://github.com/"

# Reports: the GPU, its capability, the architectures that torch.cuda.get_arch_list() or torch's warning shows there,
# what happened ("absent": no kernel image is available, or torch says that it does not fit), and where it is told.
REPORTS: list[tuple[str, Capability, str, Verdict, str]] = [
    ("RTX 5090", (12, 0), CU12, "absent", "pytorch/pytorch/issues/167244"),
    ("RTX 5090", (12, 0), CU12, "absent", "Janrupf/stable-diffusion-webui-nix/issues/9"),
    ("RTX 5090", (12, 0), CU12, "absent", "Hellod035/LeggedLab/issues/26"),
    ("RTX 5090", (12, 0), CU118, "absent", "pBFSLab/DeepPrep/issues/233"),
    ("RTX 5070 Ti", (12, 0), CU12, "absent", "vllm-project/vllm/issues/21633"),
    ("B200", (10, 0), CU12, "absent", "ovg-project/kvcached/issues/111"),
    ("B200", (10, 0), CU12, "absent", "sgl-project/sglang/pull/5071"),
    ("H100", (9, 0), CU117, "absent", "pytorch/pytorch/issues/90761"),
    ("H100", (9, 0), CU117, "absent", "PKU-YuanGroup/Open-Sora-Plan/issues/39"),
    ("RTX 3070", (8, 6), CU102, "absent", "pytorch/pytorch/issues/52736"),
    ("RTX 3090", (8, 6), CUDA9, "absent", "Turoad/CLRNet/issues/83"),
    ("A100", (8, 0), CU102, "absent", "PrateekMunjal/TorchAL/issues/4"),
    ("A100", (8, 0), CUDA9, "absent", "pytorch/pytorch/issues/45028"),
    ("A100", (8, 0), CUDA9, "absent", "sp-uhh/sgmse/issues/17"),
    # 2.11 for CUDA 12.8 lost the V100, which 2.10 has; the same issue shows both lists.
    ("V100", (7, 0), "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", "absent", "pytorch/pytorch/issues/182250"),
    ("V100", (7, 0), "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", "native", "pytorch/pytorch/issues/182250"),
    ("one of 5.0", (5, 0), "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120", "absent",
     "pytorch/pytorch/pull/158301"),
    # No list names sm_89, and it works: machine code of 8.6 runs on 8.9.
    ("RTX 4090", (8, 9), CU118, "native", "pytorch/pytorch/issues/95648"),
    ("RTX 4060", (8, 9), "sm_61 sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", "native",
     "debpalash/VoiceStudio/pull/1289"),
    # torch warns here, because it does not count PTX; simple work runs, what needs sm_80 does not.
    ("RTX 3070", (8, 6), "sm_60 sm_70 sm_75 compute_70 compute_75", "PTX", "Kaggle/docker-python/pull/1411"),
]  # fmt: skip


@pytest.mark.parametrize(("gpu", "number", "names", "outcome", "where"), REPORTS)
def test_what_users_reported_follows_from_the_architectures(
    gpu: str, number: Capability, names: str, outcome: Verdict, where: str
) -> None:
    assert architecture.verdict(number, names.split()) == outcome, f"{gpu}: {ISSUES}{where}"


@pytest.mark.parametrize(
    ("number", "names", "verdict"),
    [
        ((8, 6), "sm_80", "native"),
        ((8, 0), "sm_86", "absent"),
        ((9, 0), "sm_80", "absent"),
        ((9, 0), "compute_80", "PTX"),
        ((7, 5), "compute_80", "absent"),
        ((9, 0), "sm_80 compute_80", "PTX"),
        ((8, 9), "sm_80 compute_80", "native"),
        ((9, 0), "sm_90a", "native"),
        ((10, 3), "sm_100a", "absent"),
        ((10, 3), "sm_100f", "native"),
        ((10, 0), "sm_103f", "absent"),
        ((12, 1), "sm_120f", "native"),
        ((12, 0), "sm_100f", "absent"),
        ((10, 0), "compute_90a", "absent"),
        ((9, 0), "compute_90a", "PTX"),
        ((10, 3), "compute_100f", "PTX"),
        ((12, 0), "compute_100f", "absent"),
        ((12, 1), "sm_120", "native"),
        ((9, 0), "", "absent"),
        ((9, 0), "lto_90 sm_9", "absent"),
    ],
)
def test_machine_code_runs_within_a_major_version_and_ptx_from_its_own_on(
    number: Capability, names: str, verdict: Verdict
) -> None:
    assert architecture.verdict(number, names.split()) == verdict


def test_an_image_judges_as_the_tool_does() -> None:
    """The two have no common module: preflight runs where the tool is not."""
    names = [f"{kind}_{number}{suffix}" for kind in ("sm", "compute") for number in (70, 75, 80, 86, 90, 100, 103, 120)
             for suffix in ("", "a", "f")]  # fmt: skip
    for gpu, name, other in itertools.product(gpus.GPUS, names, ("sm_80", "compute_90")):
        pair = (name, other)
        assert capability.verdict(gpu.capability, pair) == architecture.verdict(gpu.capability, pair)
        for cuda in ("12.4", "12.8", "13.0", "14.0"):
            assert capability.driver(cuda, gpu.capability) == architecture.driver(cuda, gpu.capability)


@pytest.mark.parametrize(
    ("cuda", "number", "least"),
    [
        ("12.8", None, "525.60.13"),
        ("12.8", (8, 0), "525.60.13"),
        ("12.8", (12, 0), "570.26"),
        ("13.0", (12, 0), "580.65.06"),
        ("13.0", None, "580.65.06"),
        ("99.0", (8, 0), ""),
    ],
)
def test_the_least_driver_is_that_of_the_cuda_and_of_the_gpu(cuda: str, number: Capability | None, least: str) -> None:
    assert architecture.driver(cuda, number) == least


def test_every_least_driver_has_a_second_source_or_says_what_else_is_known() -> None:
    least = {driver.version: driver for driver in architecture.LEAST_DRIVERS}
    assert set(least) == {*architecture.DRIVERS.values(), *architecture.FIRST_DRIVERS.values()}
    for driver in least.values():
        assert len(driver.sources) > 1 or driver.besides
        assert all(address.startswith("https://") for address in driver.sources.values())


def test_the_reports_are_enough_and_each_is_one() -> None:
    absent = {where for *_, verdict, where in REPORTS if verdict == "absent"}
    assert len(absent) >= 12
