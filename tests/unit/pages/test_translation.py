"""A translated document has the commands, tables and headings of its original."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAIRS = [
    (path.with_name(path.name.replace(".zh-CN", "")), path)
    for path in (*ROOT.glob("*.zh-CN.md"), *(ROOT / "docs").rglob("*.zh-CN.md"))
]
NAMES = [path.stem for _, path in PAIRS]


def blocks(path: Path) -> list[str]:
    """Every block of code: commands, diagrams, trees."""
    return re.findall(r"^```.*?^```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def prose(path: Path) -> list[str]:
    """The lines outside of blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE).splitlines()


def headings(path: Path) -> list[int]:
    """The level of each heading."""
    return [len(line) - len(line.lstrip("#")) for line in prose(path) if line.startswith("#")]


def tables(path: Path) -> list[tuple[int, str]]:
    """Of each row of each table: how many cells it has, and the code in the first one."""
    rows = [line for line in prose(path) if line.startswith("|")]
    return [(row.count("|"), " ".join(re.findall(r"`[^`]+`", row.split("|")[1]))) for row in rows]


def targets(path: Path) -> set[str]:
    """What its links lead to; a translation may lead to other translations."""
    links = re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
    return {link.replace(".zh-CN", "") for link in links} - {path.name.replace(".zh-CN", "")}


def test_readme_and_failures_are_translated() -> None:
    assert sorted(NAMES) == ["README.zh-CN", "failures.zh-CN"]


@pytest.mark.parametrize(("original", "translation"), PAIRS, ids=NAMES)
def test_translation_keeps_commands_tables_and_headings(original: Path, translation: Path) -> None:
    assert blocks(translation) == blocks(original)
    assert tables(translation) == tables(original)
    assert headings(translation) == headings(original)
    assert targets(translation) == targets(original)


@pytest.mark.parametrize(("original", "translation"), PAIRS, ids=NAMES)
def test_translation_and_original_link_to_each_other(original: Path, translation: Path) -> None:
    assert f"({translation.name})" in original.read_text(encoding="utf-8")
    assert f"({original.name})" in translation.read_text(encoding="utf-8")
