"""The journal of a bisection and its seal are two files: a kill between them loses no trial."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from builder.base import sealed
from builder.bisect.journal import Journal, Trial
from tests.conftest import Small


def test_a_kill_between_a_journal_and_its_seal_loses_nothing(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Journal.open(small.project, "key", small.scratch())
    opened.decide("one", ["a"], lambda: Trial("green"))
    with monkeypatch.context() as patched:
        patched.setattr(sealed, "write", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            opened.decide("other", ["b"], lambda: Trial("red"))
    again = Journal.open(small.project, "key", opened.scratch)
    assert again.sets.keys() == {"one"}
    again.decide("other", ["b"], lambda: Trial("red"))
    assert Journal.open(small.project, "key", opened.scratch).sets.keys() == {"one", "other"}
    assert len(list(opened.path.parent.glob("*.seal"))) == 1
