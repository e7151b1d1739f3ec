"""Next steps in the source: every f-string that a person may copy into a shell, and what is put into it unquoted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What begins a command that is printed.
MARK = re.compile(r"next: |(?:^|[ `(])(?:\./)?vetted [a-z]+ ")
KEYWORDS = ("next_step", "fix")
# Functions that take one by its position.
POSITIONS = {"AuditFinding": 1} | dict.fromkeys(
    ("reading.text", "reading.json_object", "reading.content", "tomlfile.parse", "tomlfile.read"), 2
)
QUOTING = ("word", "text.word", "shlex.join")
JOINED = re.compile(r"'[, ]*'\.join\(map\((text\.)?word, .*\)\)", re.DOTALL)


def unquoted(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the expression of everything in a file that is put into a next step as it is."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {name for value in _given(tree) for name in _names(value)}
    seen = set()
    for string, begun in _strings(tree, named):
        for value in _put(string, begun=begun):
            for leaf in _leaves(value):
                if (place := (leaf.lineno, ast.unparse(leaf))) not in seen:
                    seen.add(place)
                    yield place


def _given(tree: ast.Module) -> Iterator[ast.expr]:
    """What is given as a next step, as keyword or as the second value of a finding."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in KEYWORDS:
            yield node.value
        elif isinstance(node, ast.Call) and (place := POSITIONS.get(ast.unparse(node.func))):
            yield from node.args[place : place + 1]


def _names(value: ast.expr) -> Iterator[str]:
    """The variables and functions that are given as a next step, and not as a part of one."""
    if isinstance(value, ast.Name):
        yield value.id
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        yield value.func.id
    elif isinstance(value, ast.BoolOp | ast.IfExp):
        for each in value.values if isinstance(value, ast.BoolOp) else (value.body, value.orelse):
            yield from _names(each)


def _strings(tree: ast.Module, named: set[str]) -> Iterator[tuple[ast.JoinedStr, bool]]:
    """Every f-string; and whether all of it is a next step."""
    whole = [*_given(tree)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id in named for t in node.targets):
            whole.append(node.value)
        elif isinstance(node, ast.FunctionDef) and node.name in named:
            whole += [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value]
        elif isinstance(node, ast.JoinedStr):
            yield node, False
    for value in whole:
        yield from ((node, True) for node in ast.walk(value) if isinstance(node, ast.JoinedStr))


def _put(string: ast.JoinedStr, *, begun: bool) -> Iterator[ast.expr]:
    """What is put into an f-string after the beginning of a command."""
    for part in string.values:
        if isinstance(part, ast.FormattedValue) and begun:
            yield part.value
        elif isinstance(part, ast.Constant):
            begun = begun or MARK.search(str(part.value)) is not None


def _leaves(value: ast.expr) -> Iterator[ast.expr]:
    """The parts of an expression that are neither quoted nor constant."""
    if isinstance(value, ast.IfExp):
        yield from (leaf for each in (value.body, value.orelse) for leaf in _leaves(each))
    elif isinstance(value, ast.JoinedStr):
        yield from (leaf for part in _put(value, begun=True) for leaf in _leaves(part))
    elif isinstance(value, ast.Call) and ast.unparse(value.func) in QUOTING:
        return
    elif not isinstance(value, ast.Constant) and not JOINED.fullmatch(ast.unparse(value)):
        yield value


def texts(document: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where the texts of a JSON document are."""
    if isinstance(document, str):
        yield place
    elif isinstance(document, dict):
        yield from (found for key, value in document.items() for found in texts(value, (*place, key)))
    elif isinstance(document, list):
        yield from (found for key, value in enumerate(document) for found in texts(value, (*place, key)))


def put(document: Any, place: tuple[str | int, ...], value: str) -> None:
    """Put a text into a JSON document."""
    for key in place[:-1]:
        document = document[key]
    document[place[-1]] = value
