"""The attacks in the documents: every test under tests/attacks/."""

from __future__ import annotations

import ast

from builder.base import reading
from builder.base.project import Project
from builder.pages import cells


def attacks(project: Project) -> str:
    """Every attack that is tested: what is tried, by the test's name, and how, by its docstring."""
    rows = []
    for path in sorted((project.root / "tests" / "attacks").glob("test_*.py")):
        for node in ast.parse(reading.text(path, project.relative(path))).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                how = (ast.get_docstring(node) or "").partition("\n\n")[0]
                tried = node.name.removeprefix("test_").replace("_", " ")
                rows.append([tried, how, cells.code(path.stem.removeprefix("test_"))])
    return cells.table(["tried", "how", "test"], rows)
