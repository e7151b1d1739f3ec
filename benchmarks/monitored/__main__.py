"""Reads jobs from standard input and writes results to standard output, as lines of JSON."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

PRELOADED = (
    "benchmarks.monitored.run", "datasets", "peft", "runtime.monitor.callback", "trl.trainer.grpo_trainer",
    "transformers.models.llama.modeling_llama", "transformers.models.qwen2.modeling_qwen2", "transformers.trainer",
)  # fmt: skip

GLOO = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
KEPT = ("weights", "rng")  # of the answers of other ranks


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
    """Run a job in a fork, or in one for each of its `ranks`; what other ranks ended with is the answer's `others`."""
    with tempfile.TemporaryDirectory(prefix="monitored-") as name:
        ranks, folder = int(job.get("ranks", 1)), Path(name)
        alone = {} if ranks == 1 else {**GLOO, "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(ranks)}
        children = [_start(job, folder, rank, alone) for rank in range(ranks)]
        if code := _ended(children):
            return {"name": job["name"], "crashed": code}
        first, *others = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]
        return {**first, "others": [{name: other.get(name) for name in KEPT} for other in others]} if others else first


def _start(job: dict[str, Any], folder: Path, rank: int, variables: dict[str, str]) -> int:
    """Fork a rank; it has a folder of its own, in which only `out` is that of all ranks. Returns its process."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        from benchmarks.monitored import run

        if variables:
            os.environ.update(variables, RANK=str(rank), LOCAL_RANK=str(rank))
        own = folder / f"rank-{rank}"
        own.mkdir()
        elsewhere = rank >= job.get("apart", rank + 1)
        out = own / "files" if elsewhere else Path(job.get("out", folder / "out"))
        out.mkdir(exist_ok=True)
        (own / "out").symlink_to(out)
        on_this_rank = rank == job.get("fault_rank", rank)
        answer = run.run(job if on_this_rank else {**job, "fault": None}, own)
        (folder / f"{rank}.json").write_text(json.dumps(answer))
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _ended(children: list[int]) -> int:
    """Wait for all ranks. When one fails, the others would wait for ever: they are ended. Returns its exit code."""
    left, failed = set(children), 0
    while left:
        child, status = os.wait()
        left.discard(child)
        if status and not failed:
            failed = os.waitstatus_to_exitcode(status)
            for other in left:
                os.kill(other, signal.SIGKILL)
    return failed


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
