"""The files of a run that the monitor writes: a row for each step and rank, and a summary at the end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from .judge import Result

SUMMARY = "monitor.json"
PACKAGES = ("torch", "transformers", "trl", "accelerate", "peft", "vllm", "deepspeed", "bitsandbytes", "datasets")
ROWS = 20_000  # of the data set, that its digest covers
BATCH = 1000


def path(folder: Path, rank: int) -> Path:
    """The rows of a rank."""
    return folder / ("monitor.jsonl" if rank == 0 else f"monitor.{rank}.jsonl")


def add(folder: Path, rank: int, row: Mapping[str, float]) -> None:
    """Append a row. Numbers that are not finite become strings: JSON has no number for them."""
    folder.mkdir(parents=True, exist_ok=True)
    finite = {key: _short(value) if math.isfinite(value) else str(value) for key, value in row.items()}
    with path(folder, rank).open("a", encoding="utf-8") as file:
        file.write(json.dumps(finite) + "\n")


def _short(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.6g}")


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows of all ranks, without truncated ones."""
    return [row for file in sorted(folder.glob("monitor*.jsonl")) for row in _rows(file)]


def last(folder: Path, rank: int, size: int) -> list[dict[str, Any]]:
    """The last rows of a rank that are whole, from at most so many bytes; none if it has no file here."""
    try:
        with path(folder, rank).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return _parsed(file.read().decode("utf-8", "replace"))
    except OSError:
        return []


def _rows(file: Path) -> list[dict[str, Any]]:
    return _parsed(file.read_text(encoding="utf-8"))


def _parsed(text: str) -> list[dict[str, Any]]:
    rows = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                rows.append(row)
    return rows


def cut(folder: Path, rank: int, step: int) -> None:
    """Remove a rank's rows after this step, and its file if none is left: a resumed run writes them again."""
    file = path(folder, rank)
    if not file.is_file():
        return
    kept = [row for row in _rows(file) if row["step"] <= step]
    if not kept:
        file.unlink()
        return
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    partial.replace(file)


def begin(folder: Path, rank: int, step: int, ranks: int) -> dict[str, Any]:
    """Remove what an earlier process left that is true no more: later rows, and the summary of its end.

    A run that is resumed may have fewer ranks, of `ranks` now. Returns the last number of each column that is left.
    """
    cut(folder, rank, step)
    if rank == 0:
        (folder / SUMMARY).unlink(missing_ok=True)
        for file in folder.glob("monitor.*.jsonl"):
            other = file.name.split(".")[1]
            if other.isdigit() and int(other) >= ranks:
                cut(folder, int(other), step)
    left = path(folder, rank)
    rows = _rows(left) if left.is_file() else []
    return {column: value for row in rows for column, value in row.items()}


def memory() -> dict[str, float]:
    """Peak memory of this process so far, in GiB: on the GPU, else on the CPU."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return {"gpu_gib": torch.cuda.max_memory_allocated() / 2**30}
    import resource

    return {"memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def summary(
    folder: Path,
    trainer: Any,
    absent: Mapping[str, str],
    blind: Iterable[str],
    results: Iterable[Result],
    share: float,
    failure: str,
) -> None:
    """Write what the rows do not say: the run, its data, its model, its machine, and which checks did not apply."""
    document = {
        "trainer": type(trainer).__name__,
        "ranks": int(getattr(trainer.accelerator, "num_processes", 1)),
        "absent": dict(absent),
        "blind": list(blind),
        "failure": failure,
        "share_of_time": _short(share),
        "outcomes": {result.check.name: result.outcome for result in results},
        "versions": versions(),
        "machine": machine(),
        "arguments": arguments(trainer.args),
        "model": model(trainer.model),
        "data": data(getattr(trainer, "train_dataset", None)),
    }
    (folder / SUMMARY).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def versions() -> dict[str, str]:
    """The packages that matter, as they are installed."""
    known = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            known[name] = metadata.version(name)
    return known


def machine() -> dict[str, Any]:
    """Processor and GPUs."""
    import torch

    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    gpus = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    )
    return {"cpu": name, "cores": os.cpu_count(), "gpus": gpus}


def arguments(args: Any) -> dict[str, Any]:
    """The trainer's own arguments as JSON, without secrets: TRL writes a token as <HUB_TOKEN>."""
    plain: dict[str, Any] = json.loads(json.dumps(args.to_dict(), default=str))
    return {name: value for name, value in plain.items() if "token" not in name or isinstance(value, (int, float))}


def model(policy: Any) -> dict[str, Any]:
    """Where the model came from, and the digest of its configuration."""
    config = getattr(policy, "config", None)
    if config is None or not hasattr(config, "to_dict"):
        return {"name": type(policy).__name__}
    text = json.dumps(config.to_dict(), sort_keys=True, default=str)
    return {
        "name": str(getattr(config, "_name_or_path", "") or type(policy).__name__),
        "commit": getattr(config, "_commit_hash", None),
        "config": hashlib.sha256(text.encode()).hexdigest(),
        "parameters": sum(getattr(p, "ds_numel", p.numel()) for p in policy.parameters()),
        "trained": sum(getattr(p, "ds_numel", p.numel()) for p in policy.parameters() if p.requires_grad),
    }


def data(dataset: Any) -> dict[str, Any]:
    """The digest of the rows of the data set: of the first 20,000, if there are more."""
    try:
        number = len(dataset)
        plain = dataset.with_format("arrow")
    except (TypeError, AttributeError):
        return {"reason": "it is streamed, or no data set of the library datasets"}
    digest, covered = hashlib.sha256(), min(number, ROWS)
    for start in range(0, covered, BATCH):
        for row in plain[start : min(start + BATCH, covered)].to_pylist():
            digest.update(json.dumps(row, sort_keys=True, default=repr).encode() + b"\n")
    return {"rows": number, "covered": covered, "sha256": digest.hexdigest()}
