"""What the tests of upgrades share."""

from __future__ import annotations

import pytest

from tests.conftest import Small
from tests.unit.conftest import Command
from tests.unit.upgrade.moving import Moving


@pytest.fixture
def moving(wheels: Small, command: Command) -> Moving:
    return Moving(wheels, command)
