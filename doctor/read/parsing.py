"""Sources of an environment, parsed and never run. They may be of any content: what cannot be parsed is None."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from doctor.read import files

LARGEST = 2 * 1024 * 1024  # bytes of a source that is parsed
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def tree(path: Path) -> ast.Module | None:
    """The syntax tree of a file; None where it cannot be read, or is no Python of this version."""
    try:
        content, more = files.head(path, LARGEST)
    except OSError:
        return None
    return None if more else tree_of(content)


def tree_of(content: bytes) -> ast.Module | None:
    """The syntax tree of a source; None where it is no Python of this version."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of strings with unknown escapes
            return ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement that runs when a module is imported: also under if, try and loops, not in functions."""
    waiting: list[ast.AST] = [node]
    while waiting:
        block = waiting.pop()
        for name in BLOCKS:
            for child in getattr(block, name, ()):
                if not isinstance(child, ast.AST):
                    continue
                yield child
                if not isinstance(child, SCOPES):
                    waiting.append(child)
