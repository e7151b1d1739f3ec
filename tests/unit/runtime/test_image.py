"""The runtime in an image: its files there, and the memory that a probe may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builder.image import context
from runtime import smoke
from tests.conftest import Small


def test_another_runtime_is_another_image(small: Small) -> None:
    before = context.description(small.project, small.lock)
    (small.root / "runtime" / "parent.py").write_text("# another one\n")
    assert context.description(small.project, small.lock) != before


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_its_files_have_the_same_modes_wherever_they_were_cloned(small: Small, tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        context.copy_runtime(small.project, tmp_path / "tree")
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(tmp_path / "tree")): path.stat().st_mode & 0o777 for path in tmp_path.rglob("tree/**/*")
    }
    assert modes["usr/local/bin/vetted"] == modes["opt/vetted/runtime"] == modes["opt/vetted/runtime/train"] == 0o755
    assert modes["opt/vetted/runtime/train/command.py"] == 0o644
    assert not [name for name in modes if "__pycache__" in name or "launcher" in name]


@pytest.mark.parametrize(("limit", "mib"), [("8589934592\n", 6144), ("1073741824\n", 768), ("max\n", None)])
def test_a_probe_may_use_the_memory_of_the_container(limit: str, mib: int | None, tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(limit)
    assert smoke.memory_mib(tmp_path / "memory.max") == (mib or smoke.memory_mib(tmp_path / "missing"))
