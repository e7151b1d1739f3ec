"""stack.toml as `vetted extend` writes it: what the parent says, what is own, and which parent it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from builder.intent.stack import Stack


def toml(stack: Stack, own: Sequence[str]) -> str:
    """The text of a stack.toml. `own`: the requirements that are not the parent's, a comment says so."""
    assert stack.extends is not None
    lines = [f"{key} = {_value(getattr(stack, key))}" for key in ("title", "device", "python", "debian")]
    parents = [line for line in stack.requires if line not in own]
    lines += ["requires = [", f"  # of {stack.extends.stack}", *(f"  {_value(line)}," for line in parents)]
    lines += ["  # own", *(f"  {_value(line)}," for line in own), "]"]
    lines += ["", "[extends]", *_pairs(stack.extends.model_dump().items())]
    for name in ("override", "patch"):
        for table in getattr(stack, name):
            lines += ["", f"[[{name}]]", *_pairs(table.model_dump().items())]
    return "\n".join(lines) + "\n"


def _pairs(items: Iterable[tuple[str, Any]]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in items if value not in ([], None)]


def _value(value: str | list[str]) -> str:
    """A string, or a list of them: JSON's are TOML's too."""
    return json.dumps(value, ensure_ascii=False)
