"""A file and its seal: a kill between the two loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base import seal, sealed
from tests.conftest import Small


class KilledError(Exception):
    """In place of a kill."""


@pytest.mark.parametrize("module", [seal, sealed], ids=["before the seal", "before the file"])
def test_a_kill_leaves_a_file_with_its_seal(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object
) -> None:
    path, scratch = tmp_path / "journal.json", small.scratch()
    sealed.replace(path, "journal", b"old", scratch)

    def fail(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr(module, "write", fail)
    with pytest.raises(KilledError):
        sealed.replace(path, "journal", b"new", scratch)
    assert sealed.intact(path, "journal", path.read_bytes())
    monkeypatch.undo()
    sealed.replace(path, "journal", b"new", scratch)
    assert path.read_bytes() == b"new" and sealed.intact(path, "journal", b"new")
    assert len(list(tmp_path.glob("*.seal"))) == 1
