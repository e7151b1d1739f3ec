"""The first contact with a borrowed GPU, rehearsed where there is none: all of its report comes back."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

from scripts import first_contact_wheels
from tests.conftest import ROOT, make_wheel
from tests.gpu import stub
from tests.gpu.conftest import CudaStack
from tests.gpu.stub import Machine

SCRIPT = ROOT / "scripts" / "first_contact.py"
PATIENCE_S = 300  # for the first probe: the stack is imported before


def contact(
    stack: CudaStack, machine: Machine, command: str, out: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    """Run the script on a machine, in the stack's Python."""
    argv = [str(stack.environment / "bin" / "python"), str(SCRIPT), command, "--out", str(out), *words]
    return subprocess.run(
        machine.command(argv), env=machine.environment, capture_output=True, text=True, check=False
    )  # fmt: skip


def events_of(out: Path) -> list[dict[str, Any]]:
    """Every event that was written down to its end."""
    file = out / "events.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def test_a_visit_brings_back_what_the_machine_has_and_every_event(cuda_stack: CudaStack, tmp_path: Path) -> None:
    machine = stub.machine(tmp_path / "machine", cuda_stack.libraries)
    (tmp_path / "wheels").mkdir()
    make_wheel(tmp_path / "wheels", "carried", "1.0", {"carried.py": "here = True\n"})
    out = tmp_path / "out"
    options = ["--wheels", str(tmp_path / "wheels"), "--probe", "gemm-sweep", "--probe", "nf4-parity"]
    done = contact(cuda_stack, machine, "run", out, *options)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "failed: gemm-sweep, nf4-parity"), done.stderr
    freeze = (out / "freeze.txt").read_text().splitlines()
    assert f"trl=={cuda_stack.lock.versions['trl']}" in freeze
    assert set(json.loads((out / "records.json").read_text())) == {line.partition("==")[0] for line in freeze}
    assert json.loads((out / "machine.json").read_text())["devices"] == ["nvidia-uvm", "nvidia0"]
    events = events_of(out)
    assert [event["event"] for event in events if event["event"] != "measured"] == [
        "start", "ready", "begin", "end", "begin", "end", "finish",
    ]  # fmt: skip
    assert {event["reason"] for event in events if event["event"] == "end"} == {
        "RuntimeError: no GPU can be used: No CUDA GPUs are available"
    }
    assert (tmp_path / "out.site" / "carried.py").is_file()


def test_a_visit_that_ends_in_the_middle_goes_on_and_runs_nothing_twice(cuda_stack: CudaStack, tmp_path: Path) -> None:
    machine, out = stub.machine(tmp_path / "machine", cuda_stack.libraries), tmp_path / "out"
    probes = ["gemm-sweep", "train-cli", "nf4-parity"]  # the second takes seconds to start a command
    words = [word for name in probes for word in ("--probe", name)]
    begun = contact(cuda_stack, machine, "run", out, *words, "--background")
    (process,) = re.findall(r"at work in the background, process (\d+)", begun.stdout)
    deadline = time.monotonic() + PATIENCE_S
    while not (ended := [event["probe"] for event in events_of(out) if event["event"] == "end"]):
        assert time.monotonic() < deadline, (out / "run.log").read_text()
        time.sleep(0.01)
    os.kill(int(process), signal.SIGKILL)
    assert ended == ["gemm-sweep"]
    state = contact(cuda_stack, machine, "status", out, "--wait", "10")
    assert state.returncode == 1 and state.stdout.startswith("ended early"), state.stdout
    assert "1 of 3 probes have ended: 1 failed\ngemm-sweep: failed: RuntimeError: no GPU can be used" in state.stdout

    assert contact(cuda_stack, machine, "run", out, *words, "--background").returncode == 0
    packed = tmp_path / "back.tar.gz"
    state = contact(cuda_stack, machine, "status", out, "--wait", str(PATIENCE_S), "--pack", str(packed))
    assert state.returncode == 1 and "ended\n3 of 3 probes have ended: 3 failed" in state.stdout, state.stdout
    events = events_of(out)
    assert [event["probe"] for event in events if event["event"] == "end"] == probes
    assert [event["probe"] for event in events if event["event"] == "begin"].count("gemm-sweep") == 1
    with tarfile.open(packed) as archive:
        assert {"out/events.jsonl", "out/machine.json", "out/run.log"} <= set(archive.getnames())


def test_a_machine_without_a_gpu_is_left_at_once(cuda_stack: CudaStack, tmp_path: Path) -> None:
    machine, out = stub.machine(tmp_path / "machine", cuda_stack.libraries, nodes=()), tmp_path / "out"
    done = contact(cuda_stack, machine, "run", out)
    assert done.returncode == 4 and "no GPU is visible: there is no /dev/nvidia0" in done.stderr, done.stderr
    assert events_of(out) == [] and (out / "machine.json").is_file()


def test_what_the_machine_lacks_is_resolved_for_its_python(cuda_stack: CudaStack) -> None:
    present = {"torch", "transformers", "accelerate", "peft", "numpy", "pyarrow", "pandas"}
    pins = dict(pin.split("==") for pin in first_contact_wheels.missing(cuda_stack.lock.versions, present, "3.12"))
    assert {name: pins[name] for name in ("trl", "datasets")} == {
        name: cuda_stack.lock.versions[name] for name in ("trl", "datasets")
    }
    assert not present & pins.keys() and "xxhash" in pins


def test_a_transfer_has_a_limit(tmp_path: Path) -> None:
    for name, size in (("a", 50), ("b", 30), ("c", 20), ("d", 70), ("e", 1)):
        (tmp_path / f"{name}.whl").write_bytes(bytes(size))
    first_contact_wheels.divide(tmp_path, 60)
    parts = {folder.name: sorted(file.stem for file in folder.iterdir()) for folder in tmp_path.iterdir()}
    assert parts == {"1": ["d"], "2": ["a", "e"], "3": ["b", "c"]}
