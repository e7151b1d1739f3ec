"""The reference of stack.toml: every key of the model, and an example that is valid."""

from __future__ import annotations

import re
import tomllib

from builder.base.project import Project
from builder.intent.stack import Stack
from builder.pages import stackfile


def test_every_key_is_explained(real: Project) -> None:
    shown = stackfile.keys(real)
    for model in stackfile.TABLES.values():
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name} has no docstring"
            assert f"| `{name}` | " in shown


def test_types_are_named_as_toml_names_them(real: Project) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", stackfile.keys(real), re.MULTILINE))
    assert rows["device"] == '`"cpu"` or `"cuda"`'
    assert rows["requires"] == "array of strings"
    assert rows["override"] == "array of tables"
    assert rows["twin"] == "table"
    assert rows["patch"] == "array of strings", "the last one is that of [expect]"


def test_the_example_is_a_valid_stack(real: Project) -> None:
    page = (real.root / "docs" / "reference" / "stack.md").read_text()
    (example,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    stack = Stack.model_validate(tomllib.loads(example))
    assert all((real.root / patch.file).is_file() for patch in stack.patch)
