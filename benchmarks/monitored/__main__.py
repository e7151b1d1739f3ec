"""Reads jobs from standard input and writes results to standard output, as lines of JSON."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

PRELOADED = (
    "benchmarks.monitored.run", "datasets", "peft", "runtime.monitor.callback", "trl.trainer.grpo_trainer",
    "transformers.models.llama.modeling_llama", "transformers.models.qwen2.modeling_qwen2", "transformers.trainer",
)  # fmt: skip


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # TRL prints to standard output
    import torch

    torch.set_num_threads(1)  # a fork of a process with OpenMP threads hangs
    import transformers

    for name in PRELOADED:  # once, and not in each fork
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for line in sys.stdin:
        answers.write(json.dumps(_forked(json.loads(line))) + "\n")
        answers.flush()


def _forked(job: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="monitored-") as folder:
        answer = Path(folder, "answer.json")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                from benchmarks.monitored import run

                answer.write_text(json.dumps(run.run(job, Path(folder))))
                code = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status or not answer.is_file():
            return {"name": job["name"], "crashed": os.waitstatus_to_exitcode(status)}
        result: dict[str, Any] = json.loads(answer.read_text())
        return result


if __name__ == "__main__":
    main()
