"""Which lines of a library does training execute? `python -m tests.mutants.tracing > executed.json`

Some probes of the suite run in the stack's environment, and each process notes every line of the files below once.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

# Files of the path from a prompt to an update, relative to site-packages.
FILES = (
    "trl/trainer/grpo_trainer.py",
    "trl/trainer/utils.py",
    "trl/models/utils.py",
    "trl/generation/vllm_generation.py",
    "transformers/trainer.py",
    "transformers/generation/utils.py",
    "transformers/generation/logits_process.py",
    "transformers/models/qwen2/modeling_qwen2.py",
    "accelerate/accelerator.py",
    "accelerate/data_loader.py",
    "peft/tuners/lora/layer.py",
    "peft/utils/save_and_load.py",
    "bitsandbytes/autograd/_functions.py",
    "deepspeed/runtime/zero/stage_1_and_2.py",
    "deepspeed/runtime/zero/stage3.py",
)
# One process and two, every kind of weights, both samplers: what GRPO is usually run with.
TRACED = ("interactions", "grpo-plain", "grpo-qlora", "grpo-vllm-colocate", "grpo-zero3-lora", "zero2-equivalence",
          "checkpoint-resume", "ddp-equivalence", "eval-during-training")  # fmt: skip
PROBE = '''\
"""Which lines does it execute?"""

from pathlib import Path

from tests.mutants.tracing import trace
from tests.sabotage._break import sabotage

PROBE, run = sabotage({name!r}, lambda: trace(Path({notes!r})))
'''


def trace(notes: Path) -> None:
    """Note each line of FILES that this process executes, and those that it forks, as `file:line` in `notes`."""
    seen: set[tuple[str, int]] = set()
    out = notes.open("a", encoding="utf-8", buffering=1)  # one write a line: processes share the file
    names: dict[str, str] = {}

    def name_of(path: str) -> str:
        if path not in names:
            names[path] = next((file for file in FILES if path.endswith(f"site-packages/{file}")), "")
        return names[path]

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            place = (names[frame.f_code.co_filename], frame.f_lineno)
            if place not in seen:
                seen.add(place)
                out.write(f"{place[0]}:{place[1]}\n")
        return line

    def call(frame: FrameType, event: str, _: Any) -> Any:  # noqa: ARG001  (Python's signature)
        return line if name_of(frame.f_code.co_filename) else None

    threading.settrace(call)
    sys.settrace(call)


def main() -> None:
    """Run the probes, and print the lines by file as JSON. Raises VettedError where a probe did not pass."""
    # Here, because the probes import this file in the stack's environment, which has no builder.
    from builder.base import errors, project
    from builder.certify import hostenv, suite, transcript
    from builder.lock import lockfile
    from tests.mutants.__main__ import STACK

    home = project.find()
    lock = lockfile.load(home, STACK)
    with home.holding("tracing") as scratch:
        with home.holding(STACK) as making:
            environment = hostenv.prepare(home, lock, making, lambda _: None)
        notes, probes = scratch / "notes", scratch / "probes"
        probes.mkdir()
        for name in TRACED:
            (probes / f"{name.replace('-', '_')}.py").write_text(PROBE.format(name=name, notes=str(notes)))
        runner = suite.on_host(environment, home.root, scratch / "run")
        command = [*runner.command, "--probes", str(probes)]
        request = suite.Request(lock.stack.device, lock.versions)

        def show(event: transcript.Event) -> None:
            if event["event"] == "end":
                print(f"{event['probe']}: {event['outcome']}", file=sys.stderr)

        answer = suite.run(dataclasses.replace(runner, command=command), request, scratch, show)
        if missing := [result.name for result in answer.results if result.outcome != "passed"]:
            raise errors.VettedError(
                f"lines are missing: {', '.join(missing)} did not pass",
                next_step=f"vetted certify {STACK} --engine host",
            )
        executed: dict[str, set[int]] = defaultdict(set)
        for entry in notes.read_text(encoding="utf-8").splitlines():
            file, _, number = entry.rpartition(":")
            executed[file].add(int(number))
    print(json.dumps({file: sorted(lines) for file, lines in sorted(executed.items())}))


if __name__ == "__main__":
    main()
