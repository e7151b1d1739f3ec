"""How the ranks of all nodes agree on the folder of a run."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from runtime import leader
from runtime.train.folder import CHECKPOINT, OUTPUT, RECORD
from runtime.train.launch import NODES


class Store:
    """A store as torch's: a value that is not there yet is waited for."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self.changed:
            self.values[key] = value.encode()
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, 20)
            return self.values[key]


def agree(environs: list[dict[str, str]]) -> list[list[str]]:
    """What each rank learns. The ranks run at once."""
    store, answers = Store(), [[""] for _ in environs]

    def rank(number: int) -> None:
        answers[number] = leader.agree(store, 2, environs[number])

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(environs))]
    for thread in reversed(threads):
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def environs(run: Path) -> list[dict[str, str]]:
    """Of two nodes with two ranks each. Node 1 has a folder of its own in its environment."""
    ranks = [{"GROUP_RANK": str(node), "LOCAL_RANK": str(rank)} for node in (0, 1) for rank in (0, 1)]
    mine = {OUTPUT: str(run), CHECKPOINT: f"{run}/checkpoint-2"}
    return [rank | (mine if rank["GROUP_RANK"] == "0" else {OUTPUT: "/tmp/other", CHECKPOINT: ""}) for rank in ranks]


def test_all_ranks_write_into_the_folder_of_node_0(tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text("{}")
    ranks = environs(tmp_path)
    assert agree(ranks) == [[], [], [], []]
    assert {rank[OUTPUT] for rank in ranks} == {str(tmp_path)}
    assert {rank[CHECKPOINT] for rank in ranks} == {f"{tmp_path}/checkpoint-2"}


def test_a_node_with_a_runs_folder_of_its_own_ends_all_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "PATIENCE", 0.1)
    digest = leader._digest
    (tmp_path / RECORD).write_text("{}")

    def other(folder: Path) -> str:  # the folder as node 1 sees it: a copy, with the record of an earlier start
        return "older" if threading.current_thread().name == "node 1" else digest(folder)

    monkeypatch.setattr(leader, "_digest", other)
    store, answers = Store(), dict[str, list[str]]()

    def rank(environ: dict[str, str]) -> None:
        answers[environ["GROUP_RANK"]] = leader.agree(store, 2, environ)

    threads = [
        threading.Thread(target=rank, args=(environ,), name=f"node {environ['GROUP_RANK']}")
        for environ in environs(tmp_path)
        if environ["LOCAL_RANK"] == "0"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {"0": ["1"], "1": ["1"]}


def test_a_launcher_that_starts_each_node_alone_is_an_error() -> None:
    leader.follow({})
    leader.follow({NODES: "1"})
    with pytest.raises(SystemExit, match="the launcher started this node alone, not as one of 2"):
        leader.follow({NODES: "2"})
