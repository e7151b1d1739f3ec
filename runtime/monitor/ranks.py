"""Do all ranks have the same weights after a step? Rank 0 compares the marks that each rank writes into its rows.

It reads the files of the other ranks in the run's folder. A collective operation would hang a run in which the monitor
of one rank has failed, or was never put on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from . import record

MARK = "weights_mark"  # of a row: `weights.mark` of the rank that wrote it
APART = "ranks_apart"  # how many ranks have other weights than rank 0
TAIL = 16384  # bytes at the end of a file that are read: some rows
AT_ONCE = 8  # ranks that are read at a step, one after the other, so that many ranks do not cost more
KEPT = 64  # steps after which a mark is forgotten


class Ranks:
    """What rank 0 sees of the others, in a run of `number` ranks. `compared`: the ranks whose weights it has seen."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.others = folder, range(1, number)
        # A rank that has written nothing since is not of this run, or not in this folder: it may run elsewhere.
        self.old = {rank: record.last(folder, rank, TAIL) for rank in self.others}
        self.mine: dict[int, int] = {}  # step -> mark
        self.done: set[tuple[int, int]] = set()  # rank, step
        self.compared: set[int] = set()
        self.turn = 0

    def after(self, row: Mapping[str, Any]) -> dict[str, int]:
        """Compare some ranks after a step of rank 0, by its row. Returns the column APART, or nothing.

        Ranks may write later than rank 0, so that a step may be compared at a later one.
        """
        step = int(row["step"])
        if MARK not in row:
            return {}
        self.mine[step] = int(row[MARK])
        for known in [known for known in self.mine if known <= step - KEPT]:
            del self.mine[known]
        self.done = {(rank, known) for rank, known in self.done if known in self.mine}
        number = min(AT_ONCE, len(self.others))
        chosen = [self.others[(self.turn + place) % len(self.others)] for place in range(number)]
        self.turn += number
        return self._compare(chosen)

    def at_end(self, step: int, patience: float = 10.0) -> dict[str, int]:
        """Wait at most so many seconds for the rows of the last step, and compare all ranks that have a file here."""
        until = time.monotonic() + patience
        while any(self._is_behind(rank, step) for rank in self.others) and time.monotonic() < until:
            time.sleep(0.05)
        return self._compare(self.others)

    def unseen(self) -> int:
        """How many ranks were never compared."""
        return len(self.others) - len(self.compared)

    def _is_behind(self, rank: int, step: int) -> bool:
        rows = self._rows(rank)
        return bool(rows) and all(row["step"] < step for row in rows)

    def _rows(self, rank: int) -> list[dict[str, Any]]:
        rows = record.last(self.folder, rank, TAIL)
        return [] if rows == self.old[rank] else rows

    def _compare(self, chosen: Iterable[int]) -> dict[str, int]:
        apart: dict[int, int] = {}
        for rank in chosen:
            for row in self._rows(rank):
                step, mark = row["step"], row.get(MARK)
                if step in self.mine and isinstance(mark, int) and (rank, step) not in self.done:
                    self.done.add((rank, step))
                    self.compared.add(rank)
                    apart[step] = apart.get(step, 0) + (mark != self.mine[step])
        return {APART: max(apart.values())} if apart else {}
