"""What a CUDA stack does before its first kernel, with the stack's own wheels and a driver that has no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from builder.base.project import Project
from builder.certify.certificate import Statement
from builder.image import render
from builder.pages import evidence, fakes
from smoke import probe
from smoke.run.zygote import PRELOAD
from tests.conftest import ROOT
from tests.gpu import attempt, stub
from tests.gpu.conftest import CudaStack, Run, run
from tests.gpu.machines import FAKES, FEW
from tests.gpu.stub import H200, Call, Machine

PROBES = probe.discover(ROOT / "smoke" / "probes")
SINGLE = {name for name, file in PROBES.items() if file.probe.gpus == 1}
FORKING = {name for name, file in PROBES.items() if file.probe.gpus == 1 and file.probe.forks}
PAIRS = {name for name, file in PROBES.items() if file.probe.gpus == 2}
NO_GPU = "RuntimeError: no GPU can be used: No CUDA GPUs are available"
# Its process must not start CUDA, and looks at what it would see.
COUNT = '''\
"""How many GPUs does a probe see?"""
from smoke.probe import Bound, Probe, Reading

GPUS = Bound("gpus", "", headline=True)
PROBE = Probe(matters="", bounds=(GPUS,), links=(), needs=("torch",), gpus={gpus}, forks=True)

def run(context):
    import torch
    yield Reading("gpus", torch.cuda.device_count())
'''


@dataclass(frozen=True)
class Attempt:
    """A run of the whole suite on one H200, what `certify` states of it, and the calls of the driver."""

    run: Run
    statement: Statement
    calls: list[Call]


@pytest.fixture(scope="module")
def whole(cuda_stack: CudaStack, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    (fake,) = [fake for fake in FAKES if fake.title == "H200"]
    folder = tmp_path_factory.mktemp("h200") / "new"
    stack = (cuda_stack.lock, cuda_stack.environment, cuda_stack.libraries)
    events: list[dict[str, Any]] = []
    statement = attempt.certify_on(fake, Project(ROOT), *stack, folder, lambda event: events.append({**event}))
    return Attempt(Run(events), statement, Machine(folder / attempt.MACHINE, ()).calls())


def test_no_wheel_brings_a_driver_or_a_stub_of_one(cuda_stack: CudaStack) -> None:
    """So preflight, which looks for libcuda.so.1, can find none but the host's."""
    site_packages = cuda_stack.environment / cuda_stack.lock.site_packages
    (script,) = site_packages.rglob("libcuda.so*")
    assert script.match(f"nvidia/cu13/{render.STUB}") and script.read_text().strip() == render.stub(cuda_stack.lock)


def test_importing_the_stack_calls_the_driver_in_no_way(whole: Attempt) -> None:
    versions = whole.run.ready["preloaded"]
    assert list(versions) == list(PRELOAD) and all(version[0].isdigit() for version in versions.values()), versions
    assert whole.calls != []
    # What a process forked for a probe does, has the start of that process in its stack.
    assert [call for call in whole.calls if "smoke/run/child.py" not in call.stack] == []


def test_it_earns_no_certificate(whole: Attempt) -> None:
    """Whatever the driver's tools say of it; tests/gpu/test_no_certificate.py has other machines."""
    statement = whole.statement
    assert (statement.hardware, statement.predicate.result) == ("1x NVIDIA H200, driver 580.95.05", "FAILED")
    assert statement.predicate.issued is None


def test_every_probe_says_that_there_is_no_gpu_to_use(whole: Attempt) -> None:
    ends = whole.run.ends
    outcomes = {name: end["outcome"] for name, end in ends.items()}
    assert {name for name, outcome in outcomes.items() if outcome == "passed"} == {"imports"}
    assert {name for name, outcome in outcomes.items() if outcome == "not-run"} == PAIRS
    for name in SINGLE - FORKING:
        assert ends[name]["reason"] == NO_GPU, name
    for name in FORKING - {"train-cli"}:  # its processes are those of a command
        # All its pieces, which is said once.
        assert ends[name]["reason"].count(f": rank 0: {NO_GPU}") == 1, name


@pytest.mark.parametrize(
    ("visible", "seen"), [(None, {1: 1, 2: 2}), ("1,0", {1: 1, 2: 2}), ("GPU-00000001", {1: 1, 2: None})]
)
def test_a_probe_sees_as_many_gpus_as_it_asks_for(
    visible: str | None, seen: dict[int, int | None], cuda_stack: CudaStack, tmp_path: Path
) -> None:
    """Of three. A single process that saw two would train with DataParallel, which TRL refuses."""
    (tmp_path / "probes").mkdir()
    for gpus in seen:
        (tmp_path / "probes" / f"count_{gpus}.py").write_text(COUNT.format(gpus=gpus))
    more = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    machine = stub.machine(tmp_path / "machine", cuda_stack.libraries, gpus=(H200,) * 3, more=more)
    ends = run(cuda_stack, machine, folder=tmp_path / "probes").ends
    counts = {gpus: ends[f"count-{gpus}"].get("measurements") for gpus in seen}
    assert {gpus: count[0]["value"] if count else None for gpus, count in counts.items()} == seen, ends


@pytest.mark.parametrize(
    ("title", "pair"),
    [
        ("2 × H200", ("failed", NO_GPU)),
        ("V100", ("not-run", "needs 2 GPU(s), found 1")),
    ],
)
def test_on_other_machines_a_few_probes_say_what_is_recorded_of_them(
    title: str, pair: tuple[str, str], cuda_stack: CudaStack, real: Project, tmp_path: Path
) -> None:
    """The documents show a run of the whole suite on each, which takes half an hour."""
    (fake,) = [fake for fake in FAKES if fake.title == title]
    machine = fake.machine(tmp_path / "machine", cuda_stack.libraries)
    ends = run(cuda_stack, machine, [*FEW, "ddp-equivalence"]).ends
    outcomes = {name: (end["outcome"], _of_any_rank(end["reason"])) for name, end in ends.items()}
    red = ("failed", NO_GPU)
    assert outcomes == {"imports": ("passed", ""), "gemm-sweep": red, "nf4-parity": red, "ddp-equivalence": pair}
    record = evidence.read(real, fakes.FakeGpus)
    assert record is not None and record.attempts is not None
    shown = record.attempts.by_machine[title]
    recorded = dict.fromkeys(shown.passed, ("passed", ""))
    for outcome, reasons in (("failed", shown.red), ("not-run", shown.not_run)):
        recorded |= {name: (outcome, _of_any_rank(line)) for line, names in reasons.items() for name in names}
    assert not shown.certified and {name: recorded[name] for name in outcomes.keys() & recorded.keys()} == {
        name: outcomes[name] for name in outcomes.keys() & recorded.keys()
    }


def _of_any_rank(reason: str | None) -> str:
    """The first line of a reason, without the rank that was the first to fail."""
    return (reason or "").partition("\n")[0].removeprefix("rank 0: ").removeprefix("rank 1: ")


@pytest.mark.parametrize(("nodes", "visible"), [(("nvidia0", "nvidia-uvm"), ""), (("nvidiactl", "nvidia-uvm"), "0")])
def test_without_a_device_no_probe_passes_and_the_reason_is_said(
    nodes: tuple[str, ...], visible: str, cuda_stack: CudaStack, tmp_path: Path
) -> None:
    more = {"CUDA_VISIBLE_DEVICES": visible}
    machine = stub.machine(tmp_path / "machine", cuda_stack.libraries, nodes=nodes, more=more)
    ends = run(cuda_stack, machine).ends
    assert {name for name, end in ends.items() if end["outcome"] == "passed"} == set()
    assert {ends[name]["reason"] for name in SINGLE} == {"needs 1 GPU(s), found 0"}
    assert "bitsandbytes has loaded its library for CPUs" in ends["imports"]["reason"]


def test_where_an_import_starts_cuda_each_probe_has_a_process_of_its_own(cuda_stack: CudaStack, tmp_path: Path) -> None:
    """For a part of a GPU (MIG), torch has no answer without CUDA."""
    part = {"CUDA_VISIBLE_DEVICES": "MIG-00000000-0000-0000-0000-000000000000"}
    machine = stub.machine(tmp_path / "machine", cuda_stack.libraries, more=part)
    answer = run(cuda_stack, machine, ["gemm-sweep", "nf4-parity"])
    assert "an import started CUDA, which does not survive a fork" in str(answer.ready["preloaded"])
    reasons = {end["reason"] for end in answer.ends.values()}
    assert reasons == {NO_GPU}


def test_without_the_management_library_each_probe_has_a_process_of_its_own(
    cuda_stack: CudaStack, tmp_path: Path
) -> None:
    machine = stub.machine(tmp_path / "machine", cuda_stack.libraries)
    (machine.folder / "libnvidia-ml.so.1").unlink()
    answer = run(cuda_stack, machine, ["nf4-parity"])
    assert "an import started CUDA" in str(answer.ready["preloaded"])
