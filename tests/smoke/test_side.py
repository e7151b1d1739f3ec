"""Pieces of work side by side: what they return, and what is left of those that fail."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from smoke.kit import side


def test_every_piece_has_a_process_and_a_directory_of_its_own(tmp_path: Path) -> None:
    def work(directory: Path, rank: int) -> Any:
        (directory / "note").write_text(str(rank))
        return {"pid": os.getpid(), "here": Path.cwd() == directory, "port": os.environ["MASTER_PORT"]}

    results = side.side_by_side(dict.fromkeys("abc", work), tmp_path / "pieces")
    assert list(results) == ["a", "b", "c"]
    assert len({result["pid"] for result in results.values()} | {os.getpid()}) == 4
    assert all(result["here"] for result in results.values())
    assert {path.parent.name for path in tmp_path.rglob("note")} == {"a", "b", "c"}


def test_ranks_of_a_piece_share_a_port_and_the_first_one_answers(tmp_path: Path) -> None:
    def work(directory: Path, rank: int) -> Any:
        (directory / f"port-{rank}").write_text(os.environ["MASTER_PORT"])
        return [rank, os.environ["RANK"], os.environ["WORLD_SIZE"]]

    assert side.side_by_side({"a": work}, tmp_path / "pieces", ranks=2) == {"a": [0, "0", "2"]}
    assert len({path.read_text() for path in tmp_path.rglob("port-*")}) == 1


def test_failures_are_results(tmp_path: Path) -> None:
    def raises(*_: Any) -> Any:
        raise ValueError("no such level")

    def crashes(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    def second_fails(_: Path, rank: int) -> Any:
        if rank:
            raise ValueError("only here")
        signal.pause()  # as in a collective operation

    pieces = {"raises": raises, "crashes": crashes, "good": lambda *_: 1}
    assert side.side_by_side(pieces, tmp_path / "pieces") == {
        "raises": {"failure": "rank 0: ValueError: no such level"},
        "crashes": {"failure": "rank 0: killed by signal 9"},
        "good": 1,
    }
    failed = side.side_by_side({"a": second_fails}, tmp_path / "ranks", ranks=2)
    assert failed == {"a": {"failure": "rank 1: ValueError: only here"}}
