"""The rows of a covering array as the work of a probe: all of them side by side, and the worst of each number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from smoke.kit import adapter, extremes, factors, interaction, side
from smoke.kit.factors import Row
from smoke.probe import Context, Reading, Skip

# Those before lack entropy_coef. Normalisers and metrics were defined otherwise in some of them.
TOO_OLD = Skip("the oracle needs the options of TRL 1.8", versions={"trl": "<1.8"})


def run(
    context: Context,
    rows: Mapping[str, Row],
    worst: tuple[str, ...],
    counted: tuple[str, ...],
    *,
    ranks: int = 1,
    seeds: Mapping[str, int] | None = None,
) -> Iterator[Reading]:
    """Run the rows that this TRL supports. `worst` are numbers of which the largest counts, `counted` are added up.

    `seeds` are those of single rows, in place of the context's.
    """
    if not {"entropy_coef", "multi_objective_aggregation"} <= adapter.known_options():
        raise TOO_OLD()
    pieces: dict[str, Callable[[Path, int], Any]] = {}
    left_out: dict[str, str] = {}
    for name, row in rows.items():
        chosen, missing = factors.supported(row, adapter.known_options(), adapter.losses())
        if row.get("backend", "ddp") != "ddp" and not find_spec("deepspeed"):
            missing = "no DeepSpeed"
        if factors.quantized(row) and not find_spec("bitsandbytes"):
            missing = "no bitsandbytes"
        if missing:
            left_out[name] = missing
        else:
            pieces[name] = _piece(context, row, chosen, ranks, (seeds or {}).get(name, context.seed))
    results = side.side_by_side(pieces, context.directory / "rows", ranks=ranks, gpus=context.device == "cuda")
    failed = side.failures(results)
    good = {name: result for name, result in results.items() if name not in failed}
    print(f"smoke: rows left out: {left_out or 'none'}", flush=True)
    yield Reading("rows_run", len(good), f"left out {left_out}")
    yield Reading("rows_failed", len(failed), side.described(failed))
    for name in worst:
        yield _largest(name, good)
    for name in counted:
        reading = _sum(name, good)
        # Nothing was counted: perhaps because rows are missing.
        yield reading if reading.value or not left_out else Reading(name, 0, f"left out {left_out}")


def _piece(context: Context, row: Row, chosen: dict[str, Any], ranks: int, seed: int) -> Callable[[Path, int], Any]:
    def work(directory: Path, rank: int) -> Any:
        own = dataclasses.replace(context, directory=directory, rank=rank, ranks=ranks, seed=seed)
        return interaction.run_row(own, row, chosen)

    return work


def _largest(name: str, results: Mapping[str, Any]) -> Reading:
    measured = [(*result[name], row) for row, result in results.items() if name in result]
    ordered = sorted(measured, key=lambda item: extremes.badness(item[0]), reverse=True)
    detail = " | ".join(f"{row}: {text}" for _, text, row in ordered[: extremes.SHOWN])
    return Reading(name, ordered[0][0] if ordered else 0.0, detail)


def _sum(name: str, results: Mapping[str, Any]) -> Reading:
    measured = {row: result[name] for row, result in results.items() if name in result}
    detail = " | ".join(f"{row}: {text}" for row, (value, text) in measured.items() if value and text)
    return Reading(name, sum(value for value, _ in measured.values()), detail)
