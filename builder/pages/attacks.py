"""The attacks in the documents: every test under tests/attacks/."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from builder.base import reading
from builder.base.project import Project
from builder.pages import cells


def attack_count(project: Project) -> str:
    tests = list(_tests(project))
    return f"**{len(tests)} attacks** are tested, in {len({path for path, _ in tests})} files.\n"


def attacks(project: Project) -> str:
    """Every attack that is tested: what is tried, by the test's name, and how, by its docstring."""
    rows = []
    for path, test in _tests(project):
        how = (ast.get_docstring(test) or "").partition("\n\n")[0]
        tried = test.name.removeprefix("test_").replace("_", " ")
        rows.append([tried, how, cells.code(path.stem.removeprefix("test_"))])
    return cells.table(["tried", "how", "test"], rows)


def _tests(project: Project) -> Iterator[tuple[Path, ast.FunctionDef]]:
    for path in sorted((project.root / "tests" / "attacks").glob("test_*.py")):
        for node in ast.parse(reading.text(path, project.relative(path))).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield path, node
