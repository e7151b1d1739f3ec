"""The picture of a command: drawn by the command itself, and complete without a network."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.conftest import ROOT, TINY, Small

SCRIPT = ROOT / "scripts" / "screenshot.py"


def draw(root: Path, target: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, target, *argv], cwd=root, capture_output=True, text=True)


def test_a_picture_shows_what_the_command_prints(small: Small, tmp_path: Path) -> None:
    small.issue()
    result = draw(small.root, tmp_path / "show.svg", "show", TINY)
    assert result.returncode == 0, result.stderr
    svg = (tmp_path / "show.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(svg)  # well-formed
    shown = html.unescape(re.sub(r"<[^>]*>", "", svg)).replace("\xa0", " ")
    assert f"$ vetted show {TINY}" in shown
    assert [word for word in result.stdout.split() if word not in shown] == []
    assert set(re.findall(r"https?://[^\"/]*", svg)) == {"http://www.w3.org"}, "its namespace alone"


def test_a_command_that_fails_leaves_the_picture_as_it_was(small: Small, tmp_path: Path) -> None:
    (tmp_path / "show.svg").write_text("old")
    assert draw(small.root, tmp_path / "show.svg", "show", TINY).returncode == 1
    assert (tmp_path / "show.svg").read_text() == "old"
