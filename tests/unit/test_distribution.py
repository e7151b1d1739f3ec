"""Files of tests that follow another one, in one worker and in this order."""

from __future__ import annotations

from tests import distribution
from tests.conftest import ROOT


def test_a_file_and_the_one_that_it_follows_are_collected_in_this_order() -> None:
    for file, first in distribution.FOLLOWS.items():
        collected = sorted(path.name for path in (ROOT / first).parent.glob("test_*.py"))
        assert collected.index((ROOT / first).name) < collected.index((ROOT / file).name)
