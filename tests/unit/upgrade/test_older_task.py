"""Golden trajectories of an older task: nothing of today can be compared with them, and it is said before any work."""

from __future__ import annotations

from typing import Any

import pytest

from builder.base import errors
from builder.upgrade import recertify
from tests.conftest import TINY, Small
from tests.unit.conftest import Command
from tests.unit.trajectory.kit import make
from tests.unit.trajectory.test_command import FILE, OLDER, keep


def test_a_watch_says_it_of_every_record_before_it_tries_anything(wheels: Small, command: Command) -> None:
    small = wheels
    keep(small)
    told = (
        f"{TINY}: the training will not be compared: the record of {TINY} is of another task than smoke/ trains today"
    )
    assert "will not be compared" not in command(small.root, "watch", TINY, "--dry-run").out
    (small.root / FILE).write_text(make(1, stack=TINY, task=OLDER).to_json())
    answer = command(small.root, "watch", TINY, "--dry-run")
    assert f"{told} (cpu-host): vetted trajectories {TINY}" in answer.out
    assert command(small.root, "watch", TINY, "--dry-run", "--json").json[TINY]["not_comparable"] != []
    (small.root / FILE).write_text("{")
    assert "the training will not be compared: " in command(small.root, "watch", TINY, "--dry-run").out


def test_recertify_says_it_before_it_resolves(small: Small, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(small, task=OLDER)

    def run(*_: Any, **__: Any) -> None:
        raise errors.VettedError("it began")

    monkeypatch.setattr(recertify, "run", run)
    answer = command(small.root, "recertify", TINY, "--engine", "host", "--trajectories")
    first, *rest = answer.err.splitlines()
    assert (
        first == f"{TINY}: the training will not be compared: the record of {TINY} is of another task than smoke/ "
        "trains today"
    )
    assert any("it began" in line for line in rest)
