"""The first contact with a borrowed GPU, rehearsed where there is none: all of its report comes back."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from scripts import first_contact_wheels
from tests.conftest import ROOT, make_wheel
from tests.gpu import stub
from tests.gpu.conftest import CudaStack


def test_a_visit_brings_back_what_the_machine_has_and_every_event(cuda_stack: CudaStack, tmp_path: Path) -> None:
    machine = stub.machine(tmp_path / "machine", cuda_stack.libraries)
    (tmp_path / "wheels").mkdir()
    make_wheel(tmp_path / "wheels", "carried", "1.0", {"carried.py": "here = True\n"})
    out, script = tmp_path / "out", ROOT / "scripts" / "first_contact.py"
    argv = [str(cuda_stack.environment / "bin" / "python"), str(script), "run", "--out", str(out)]
    options = ["--wheels", str(tmp_path / "wheels"), "--probe", "gemm-sweep", "--probe", "nf4-parity"]
    done = subprocess.run(
        machine.command([*argv, *options]), env=machine.environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "failed: gemm-sweep, nf4-parity"), done.stderr
    freeze = (out / "freeze.txt").read_text().splitlines()
    assert f"trl=={cuda_stack.lock.versions['trl']}" in freeze
    assert set(json.loads((out / "records.json").read_text())) == {line.partition("==")[0] for line in freeze}
    assert json.loads((out / "machine.json").read_text())["devices"] == ["nvidia-uvm", "nvidia0"]
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events if event["event"] != "measured"] == [
        "start", "ready", "begin", "end", "begin", "end", "finish",
    ]  # fmt: skip
    assert {event["reason"] for event in events if event["event"] == "end"} == {
        "RuntimeError: no GPU can be used: No CUDA GPUs are available"
    }
    assert (tmp_path / "out.site" / "carried.py").is_file()


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
