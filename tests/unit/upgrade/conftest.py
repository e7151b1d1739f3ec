"""What the tests of upgrades share: a stack to move, and no Debian mirror, unless a test brings its answer."""

from __future__ import annotations

from typing import Any

import pytest

from builder.base import errors
from builder.lock import renewal
from tests.conftest import Small
from tests.unit.conftest import Command
from tests.unit.upgrade.moving import Moving


@pytest.fixture(autouse=True)
def no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(*_: Any) -> None:
        raise errors.NetworkError("the Debian mirror did not answer\nConnection refused")

    monkeypatch.setattr(renewal, "of", of)


@pytest.fixture
def moving(wheels: Small, command: Command) -> Moving:
    return Moving(wheels, command)
