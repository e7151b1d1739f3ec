"""`vetted train my_train.py`, up to the start of its processes and after their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from runtime.train import command, process


class Processes:
    """The processes of a run: their command, and a file that they write into the folder of the run."""

    def __init__(self) -> None:
        self.argv: list[str] = []
        self.writes = ""

    def run(self, argv: Sequence[str], stop: Path, _environ: Mapping[str, str]) -> int:
        self.argv = list(argv)
        if self.writes:
            (stop.parent / self.writes).touch()
        return 0


@pytest.fixture
def processes(here: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    (here / "my_train.py").touch()
    processes = Processes()
    monkeypatch.setattr(process, "run", processes.run)
    return processes


@pytest.mark.parametrize(("written", "left"), [("", 0), ("events.out.tfevents.1", 0), ("metrics.jsonl", 1)])
def test_a_script_that_ends_well_and_never_trained_leaves_nothing(
    runs: Path, site: Path, processes: Processes, capsys: pytest.CaptureFixture[str], written: str, left: int
) -> None:
    processes.writes = written
    assert command.main(("my_train.py", "--help"), runs, site) == 0
    assert processes.argv[-2:] == ["my_train.py", "--help"]
    assert len(list(runs.iterdir())) == left
    assert ("this start never trained" in capsys.readouterr().err) == (not left)


def test_one_process_of_a_script_has_a_process_group(runs: Path, site: Path, processes: Processes) -> None:
    """Without one DeepSpeed looks for MPI, which no image has."""
    assert command.main(("my_train.py",), runs, site) == 0
    assert "torch.distributed.run --nnodes 1 --nproc_per_node 1" in " ".join(processes.argv)
