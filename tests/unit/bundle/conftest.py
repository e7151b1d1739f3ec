"""Bundles of the small stack."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from builder.bundle import bundle, selection
from builder.bundle.bundle import Bundle, Request
from builder.bundle.unbundle import parts
from builder.bundle.unbundle.manifest import read_manifest
from tests.conftest import Small


@pytest.fixture
def bare(wheels: Small, monkeypatch: pytest.MonkeyPatch) -> Small:
    """Its bundle carries no verifier, whose packages would need an index."""
    monkeypatch.setattr(selection, "tool_pins", lambda _: {})
    return wheels


def make(small: Small, output: Path, host: Mapping[str, int] | None = None, part_size: int = 100_000) -> Bundle:
    """For a host that has the stack's Python, which the small stack's lock has no packages of."""
    request = Request(small.lock.stack.python, host or {}, "host")
    return bundle.make(small.project, small.lock, request, output, small.scratch(), part_size, lambda _: None)


def unpacked(folder: Path, to: Path) -> Path:
    manifest = read_manifest(folder)
    to.mkdir(exist_ok=True)
    parts.collect(folder, manifest, to / "parts")
    parts.unpack(to / "parts", manifest, to / "bundle")
    return to / "bundle"


@pytest.fixture
def carried(bare: Small, tmp_path: Path) -> Path:
    folder = tmp_path / "carried"
    make(bare, folder)
    return folder
