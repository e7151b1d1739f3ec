"""Bundles of the small stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.bundle import bundle, selection, unbundle
from builder.bundle.bundle import Bundle
from tests.conftest import Small


@pytest.fixture
def bare(wheels: Small, monkeypatch: pytest.MonkeyPatch) -> Small:
    """Its bundle carries no verifier, whose packages would need an index."""
    monkeypatch.setattr(selection, "tool_pins", lambda _: {})
    return wheels


def make(small: Small, output: Path, host: dict[str, str] | None = None, part_size: int = 100_000) -> Bundle:
    return bundle.make(
        small.project, small.lock, output, small.scratch(), part_size, small.lock.stack.python, host or {},
        lambda _: None,
    )  # fmt: skip


def unpacked(folder: Path, to: Path) -> Path:
    manifest = unbundle.read_manifest(folder)
    to.mkdir(exist_ok=True)
    unbundle.collect(folder, manifest, to / "parts")
    unbundle.unpack(to / "parts", manifest, to / "bundle")
    return to / "bundle"


@pytest.fixture
def carried(bare: Small, tmp_path: Path) -> Path:
    folder = tmp_path / "carried"
    make(bare, folder)
    return folder
