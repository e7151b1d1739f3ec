"""What `bundle` says when it is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.commands import carry


def test_a_folder_has_its_name_also_as_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify ''` would be refused."""
    (tmp_path / "carried").mkdir()
    monkeypatch.chdir(tmp_path / "carried")
    assert carry._name(Path()) == carry._name(tmp_path / "carried") == "carried"
