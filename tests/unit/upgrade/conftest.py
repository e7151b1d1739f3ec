"""Watches without a Debian mirror, unless a test brings what it says."""

from __future__ import annotations

from typing import Any

import pytest

from builder.base import errors
from builder.lock import renewal


@pytest.fixture(autouse=True)
def no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(*_: Any) -> None:
        raise errors.NetworkError("the Debian mirror did not answer\nConnection refused")

    monkeypatch.setattr(renewal, "of", of)
