"""What `vetted train` says and returns when the launcher of a run ends badly."""

from __future__ import annotations

import runpy
from types import SimpleNamespace

import pytest

from runtime import parent


class ChildFailedError(Exception):
    """As torchrun raises it."""

    exitcode = 0

    def get_first_failure(self) -> tuple[int, SimpleNamespace]:
        return 3, SimpleNamespace(exitcode=self.exitcode)


@pytest.mark.parametrize(
    ("exitcode", "status", "words"), [(2, 2, ""), (-9, 137, "vetted: rank 3 was ended by SIGKILL\n")]
)
def test_a_rank_that_failed_has_said_why_and_its_status_is_the_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], exitcode: int, status: int, words: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ChildFailedError

    monkeypatch.setattr(ChildFailedError, "exitcode", exitcode)
    monkeypatch.setattr(runpy, "run_module", fail)
    with pytest.raises(SystemExit) as end:
        parent.launch("torch.distributed.run")
    assert end.value.code == status
    assert capsys.readouterr().err == words


def test_another_error_of_the_launcher_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("--nproc_per_node")

    monkeypatch.setattr(runpy, "run_module", fail)
    with pytest.raises(ValueError, match="--nproc_per_node"):
        parent.launch("torch.distributed.run")
