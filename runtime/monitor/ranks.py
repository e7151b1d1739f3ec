"""Do all ranks have the same weights after a step? Rank 0 compares the marks that each rank writes into its rows.

It reads the files of the other ranks: a collective operation would hang the run where the monitor of one rank has
failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import record

MARK = "weights_mark"  # of a row: `weights.mark` of the rank that wrote it
APART = "ranks_apart"  # how many ranks have other weights than rank 0
TAIL = 8192  # bytes at the end of a file that are read at a step: a few rows


class Ranks:
    """What rank 0 knows of the others, in a run of `number` ranks. `seen`: whether it has read a row of any."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder, number
        self.mine: dict[int, int] = {}  # step -> mark, until every rank has written its own
        self.theirs: dict[int, set[int]] = {}  # step -> the ranks that were compared
        self.seen = False

    def compare(self, row: Mapping[str, Any] | None = None) -> dict[str, int]:
        """After a step, with the row of rank 0; without one at the end of training.

        Ranks may write later than rank 0 does, so that a step is compared at the next one. Returns the column APART of
        the steps that could be compared now, or nothing.
        """
        if row is not None and MARK in row:
            self.mine[int(row["step"])] = int(row[MARK])
        apart: dict[int, int] = {}
        for rank in range(1, self.number):
            for other in record.last(self.folder, rank, TAIL):
                step, mark = other["step"], other.get(MARK)
                compared = self.theirs.setdefault(step, set()) if step in self.mine else {rank}
                if rank in compared or not isinstance(mark, int):
                    continue
                compared.add(rank)
                apart[step] = apart.get(step, 0) + (mark != self.mine[step])
        self.seen = self.seen or bool(apart)
        for step in [step for step, ranks in self.theirs.items() if len(ranks) == self.number - 1]:
            del self.mine[step], self.theirs[step]
        return {APART: max(apart.values())} if apart else {}
