"""Pieces of work side by side: what they return, and what is left of those that fail."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from smoke.kit import launch, side


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


def test_pieces_with_the_same_failure_are_named_together() -> None:
    results: dict[str, Any] = {"good": {"loss": 1.0}, "list": [1]}
    side.require(results)
    results |= {f"row {number}": {"failure": "rank 0: no GPU"} for number in range(1, 4)}
    results["other"] = {"failure": "rank 1: no port"}
    said = "row 1, row 2, row 3: rank 0: no GPU; other: rank 1: no port"
    assert side.described(side.failures(results)) == said
    with pytest.raises(RuntimeError, match=said):
        side.require(results)
    results["row 4"] = results["row 5"] = results["row 1"]
    assert side.described(side.failures(results)).startswith("row 1, row 2, row 3 and 2 more: rank 0: no GPU; ")


class Gpu:
    """Stands for the GPU of a process, and demands that something ran on it."""

    used = ""

    def __init__(self, device: int) -> None:
        self._device = device

    def require(self) -> None:
        if type(self).used != f"device {self._device}":
            raise RuntimeError("nothing ran on the GPU: no memory of it was allocated")


def test_on_gpus_each_rank_must_use_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a GPU that works, packages train on the CPU, and nothing fails."""
    monkeypatch.setattr(side, "Use", Gpu)

    def all_use(_: Path, rank: int) -> Any:
        Gpu.used = f"device {rank}"
        return rank

    def first_uses(_: Path, rank: int) -> Any:
        Gpu.used = "device 0"
        return rank

    pieces = {"all": all_use, "first": first_uses}
    results = side.side_by_side(pieces, tmp_path / "gpus", ranks=2, gpus=True)
    reason = "rank 1: RuntimeError: nothing ran on the GPU: no memory of it was allocated"
    assert results == {"all": 0, "first": {"failure": reason}}
    assert side.side_by_side(pieces, tmp_path / "cpu", ranks=2) == {"all": 0, "first": 0}


@pytest.mark.parametrize(("on_gpu", "used", "status"), [(True, "", 1), (True, "device 0", 0), (False, "", 0)])
def test_the_script_of_a_launcher_must_use_the_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, on_gpu: bool, used: str, status: int
) -> None:
    monkeypatch.setattr(launch, "Use", Gpu)
    monkeypatch.setattr(Gpu, "used", used)
    script = tmp_path / "script.py"
    script.write_text("")
    with launch.Interpreters(on_gpu=on_gpu) as interpreters:
        assert interpreters.start([sys.executable, str(script)]).wait() == status


def test_a_launcher_is_told_that_nobody_runs_its_script(tmp_path: Path) -> None:
    (tmp_path / "killer.py").write_text("import os, signal; os.kill(os.getppid(), signal.SIGKILL); signal.pause()")
    with launch.Interpreters() as interpreters:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="has ended"):
                interpreters.start([sys.executable, str(tmp_path / "killer.py")])


def test_a_script_starts_from_the_process_as_it_was_before_its_launcher(tmp_path: Path) -> None:
    """`trl grpo` starts CUDA before it launches its script, and CUDA does not survive a fork (an H100 said so)."""
    script, said = tmp_path / "script.py", tmp_path / "said"
    script.write_text(f"""\
import json, os, sys
json.dump([sys.argv, dict(os.environ), "started_by_the_launcher" in sys.modules], open({str(said)!r}, "w"))
""")
    with launch.Interpreters() as interpreters:

        def launcher() -> int:
            sys.modules["started_by_the_launcher"] = sys
            first = interpreters.start([sys.executable, str(script), "one"], env={"ONLY": "this"})
            second = interpreters.start([sys.executable, str(tmp_path / "absent.py")])
            return 0 if (first.wait(), second.wait()) == (0, 1) else 3

        assert launch.forked(launcher) == 0
        with pytest.raises(ValueError, match="not a script"):
            interpreters.start([sys.executable, "-c", "pass"])
    assert json.loads(said.read_text()) == [[str(script), "one"], {"ONLY": "this"}, False]
    assert interpreters.scripts == 2


@pytest.mark.parametrize("together", [False, True])
def test_a_gpu_that_takes_one_process_gets_one_at_a_time(
    together: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(side, "Use", lambda _: SimpleNamespace(require=lambda: None))
    monkeypatch.setattr(side, "shared", lambda: together)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    def work(_directory: Path, _rank: int) -> Any:
        begun = time.monotonic()
        time.sleep(0.3)
        return [begun, time.monotonic()]

    results = side.side_by_side(dict.fromkeys("ab", work), tmp_path / "pieces", gpus=True)
    (begun, ended), (other_begun, other_ended) = results.values()
    assert (begun < other_ended and other_begun < ended) == together
