"""Pieces of work in forked processes of their own, as many side by side as there are cores.

For pieces that cannot share a process, such as runs of one trainer each. The process that forks them must not have used
torch: a fork has none of its threads.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smoke.run import child, linux
from smoke.run.gpus import Use, shared

# A probe may use eight GiB. A process takes some 200 MiB, and on a GPU some 950.
_MOST = 8
_MOST_ON_GPUS = 4
_GRACE_S = 1.0  # how long the other ranks of a piece may run after one has failed
_NAMED = 3  # how many of the pieces with the same failure are named


@dataclass
class _Piece:
    """A piece under way: its processes by rank, and when the first of them failed."""

    running: dict[int, int] = field(default_factory=dict)
    failed: str = ""
    since: float = 0.0


def side_by_side(
    pieces: Mapping[str, Callable[[Path, int], Any]], directory: Path, *, ranks: int = 1, gpus: bool = False
) -> dict[str, Any]:
    """Call every piece with a directory of its own and its rank, in `ranks` processes, and return what rank 0 returns.

    That must be JSON. An exception, a signal or an early end gives {"failure": …} in its place. On GPUs a rank that
    allocates nothing on its own GPU has failed, and one piece runs at a time where a GPU takes one process only.
    """
    cores = len(os.sched_getaffinity(0))
    # One more than fits where pieces have several ranks: while the first of them measures, the others are done.
    slots = max(1, min(_MOST, cores // ranks + (ranks > 1)))
    if gpus:
        slots = max(1, min(_MOST_ON_GPUS, cores) // ranks) if shared() else 1
    threads = max(1, cores // (slots * ranks))
    waiting = list(pieces)
    under_way: dict[str, _Piece] = {}
    results: dict[str, Any] = {}
    while waiting or under_way:
        while waiting and len(under_way) < slots:
            name = waiting.pop(0)
            under_way[name] = _start(pieces[name], directory / name, ranks, threads, gpus)
        for name in [name for name, piece in under_way.items() if _ended(piece, directory / name)]:
            results[name] = _result(under_way.pop(name), directory / name)
        time.sleep(0.005)
    return {name: results[name] for name in pieces}


def failures(results: Mapping[str, Any]) -> dict[str, str]:
    """Why pieces failed, by their names."""
    return {
        name: result["failure"] for name, result in results.items() if isinstance(result, dict) and "failure" in result
    }


def described(failed: Mapping[str, str]) -> str:
    """What failed and why, in one line: pieces with the same failure together."""
    alike: dict[str, list[str]] = {}
    for name, why in failed.items():
        alike.setdefault(why, []).append(name)
    return "; ".join(f"{_names(names)}: {why}" for why, names in alike.items())


def require(results: Mapping[str, Any]) -> None:
    """Raise RuntimeError if a piece failed."""
    if failed := failures(results):
        raise RuntimeError(described(failed))


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _start(work: Callable[[Path, int], Any], directory: Path, ranks: int, threads: int, gpus: bool) -> _Piece:
    directory.mkdir(parents=True)
    # Found here, so that all ranks have the same one.
    port = child.free_port()
    piece = _Piece()
    for rank in range(ranks):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(_on_gpu(work) if gpus else work, directory, rank, ranks, port, threads, parent)
        piece.running[rank] = pid
    return piece


def _on_gpu(work: Callable[[Path, int], Any]) -> Callable[[Path, int], Any]:
    def demanding(directory: Path, rank: int) -> Any:
        use = Use(rank)
        result = work(directory, rank)
        use.require()
        return result

    return demanding


def _become(
    work: Callable[[Path, int], Any], directory: Path, rank: int, ranks: int, port: int, threads: int, parent: int
) -> None:
    status = 1
    try:
        linux.die_with_parent(parent)
        os.chdir(directory)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS=str(threads))
        if ranks > 1:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
        if torch := sys.modules.get("torch"):  # imported before the fork, it no longer reads the environment
            torch.set_num_threads(threads)
        _write(directory, rank, work(directory, rank))
        status = 0
    except BaseException as error:
        traceback.print_exc()
        _write(directory, rank, {"failure": "".join(traceback.format_exception_only(type(error), error)).strip()})
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _write(directory: Path, rank: int, result: Any) -> None:
    (directory / f"result-{rank}.json").write_text(json.dumps(result))


def _ended(piece: _Piece, directory: Path) -> bool:
    for rank, pid in list(piece.running.items()):
        ended, wait_status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            continue
        del piece.running[rank]
        status = os.waitstatus_to_exitcode(wait_status)
        if status != 0 and not piece.failed:
            piece.failed, piece.since = _why(directory, rank, status), time.monotonic()
    if piece.failed and piece.running and time.monotonic() - piece.since > _GRACE_S:
        linux.signal_all(set(piece.running.values()), signal.SIGKILL)
    return not piece.running


def _why(directory: Path, rank: int, status: int) -> str:
    file = directory / f"result-{rank}.json"
    if status > 0 and file.exists():
        return f"rank {rank}: {json.loads(file.read_text())['failure']}"
    return f"rank {rank}: " + (f"killed by signal {-status}" if status < 0 else f"exited with status {status}")


def _result(piece: _Piece, directory: Path) -> Any:
    if piece.failed:
        return {"failure": piece.failed}
    return json.loads((directory / "result-0.json").read_text())
