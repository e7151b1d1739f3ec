"""The pool that false alarms are measured with: seeds of one training, recorded by several commands."""

from __future__ import annotations

import pytest

from benchmarks import trajectories
from builder.base import errors
from tests.unit.trajectory import kit


def test_records_of_one_training_are_put_together() -> None:
    pool = trajectories.together([kit.make(0, seeds=3), kit.make(0, seeds=4, first=4, failed={9: "nan"})])
    assert [seed.seed for seed in pool.seeds] == [1, 2, 3, 4, 5, 6, 7]
    assert pool.failed == {9: "nan"}


@pytest.mark.parametrize("other", [{"lock": "sha256:" + "1" * 64}, {"task": "sha256:" + "1" * 64}, {"steps": 50}])
def test_another_training_is_refused(other: dict[str, object]) -> None:
    record = kit.make(0, seeds=2, first=4, **{"steps": 60, **other})  # type: ignore[arg-type]
    with pytest.raises(errors.BadInputError, match="not of one training"):
        trajectories.together([kit.make(0, seeds=3), record])


def test_a_seed_counts_once() -> None:
    with pytest.raises(errors.BadInputError, match="a seed is in two"):
        trajectories.together([kit.make(0, seeds=3), kit.make(0, seeds=2, first=3)])
    assert trajectories.disjoint(kit.make(0, seeds=8), pairs=2, size=2)
    assert not trajectories.disjoint(kit.make(0, seeds=7), pairs=2, size=2)
