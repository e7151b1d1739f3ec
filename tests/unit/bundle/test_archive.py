"""An archive in parts: sizes are read, and joined parts are the stream that was split."""

from __future__ import annotations

import io
import random
import re
import subprocess
from pathlib import Path

import pytest

from builder.bundle import archive
from builder.bundle.unbundle import parts as unpacking
from tests import parts
from tests.conftest import ROOT, TINY, Small
from tests.unit.conftest import Command


@pytest.mark.parametrize(
    ("text", "size"), [("60M", 60 << 20), ("1k", 1024), ("2G", 2 << 30), ("64MiB", 64 << 20), ("1024", 1024)]
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert archive.parse_size(text) == size


def test_a_part_and_the_tracked_files_fit_into_one_transfer(command: Command, small: Small) -> None:
    """Of 64 MiB, with two to spare: the entry script and the list of parts go along, too."""
    listed = subprocess.run(
        [parts.git(), "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    tracked = sum((ROOT / name).lstat().st_size for name in listed.split("\0") if name)
    assert archive.parse_size(archive.PART_SIZE) + tracked <= 62 << 20
    (default,) = re.findall(r"--part-size.*?default: (\w+)", command(small.root, "bundle", "--help").out, re.DOTALL)
    assert default == archive.PART_SIZE


@pytest.mark.parametrize("text", ["", "M", "60X", "-1M", "1.5M", "1023", "0", "9" * 20 + "G"])
def test_what_is_no_size_is_a_usage_error(command: Command, small: Small, tmp_path: Path, text: str) -> None:
    answer = command(small.root, "bundle", TINY, "--output", str(tmp_path / "out"), f"--part-size={text}")
    assert answer.code == 2
    assert "--part-size" in answer.err


@pytest.mark.parametrize("size", [1024, 4096, 10_000, 10**6])
def test_splitting_and_joining_give_the_stream(tmp_path: Path, size: int) -> None:
    rng = random.Random(size)
    data = rng.randbytes(50_000)
    cuts = sorted(rng.sample(range(len(data)), 20))
    chunks = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    parts = list(archive.split(chunks, tmp_path, "x", size))
    assert [part.size for part in parts[:-1]] == [size] * (len(parts) - 1)
    assert io.BufferedReader(unpacking.Stream(unpacking.joined(tmp_path, parts)), 777).read() == data
    assert list(tmp_path.glob(".*")) == []
