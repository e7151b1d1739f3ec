"""The reference of stack.toml: every key, read from the model that validates the file."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from builder.base.project import Project
from builder.base.tomlfile import Table
from builder.intent.extension import Extends
from builder.intent.stack import Expect, Override, Patch, Stack
from builder.pages import cells
from builder.pages.cells import Markdown

TABLES: dict[str, type[Table]] = {
    "The file": Stack,
    "`[[override]]`": Override,
    "`[[patch]]`": Patch,
    "`[extends]`, in an extension": Extends,
    "`[expect]`, in a control": Expect,
}


def keys(_: Project) -> str:
    """Every key of stack.toml and of its tables: type, whether it is required, and what it means."""
    return "\n".join(f"## {title}\n\n{_table(model)}" for title, model in TABLES.items())


def _table(model: type[Table]) -> str:
    rows = [
        [cells.code(name), _type(field.annotation), "yes" if field.is_required() else "no", _meaning(field.description)]
        for name, field in model.model_fields.items()
    ]
    return cells.table(["key", "type", "required", "meaning"], rows)


def _meaning(description: str | None) -> str:
    return " ".join((description or "").split())


def _type(annotation: Any) -> Markdown:
    """The type of a key in the words of TOML."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return cells.joined([cells.code(f'"{value}"') for value in arguments], " or ")
    if origin in (Union, types.UnionType):  # with None: the key may be left out
        return _type(arguments[0])
    if origin is Annotated:
        return _type(arguments[0])
    if origin is list:
        return Markdown(f"array of {_type(arguments[0])}s")
    return Markdown("string" if annotation is str else "table")
