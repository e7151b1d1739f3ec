"""TOML files that a person writes: data, never code. Errors name the file, the key and the fix."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from builder.base import errors, reading
from builder.base.text import line, word


class Table(BaseModel):
    """A table of such a file. No value is converted, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


T = TypeVar("T", bound=Table)


def one_line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("must be one line of printable text")
    return value


Line = Annotated[str, AfterValidator(one_line)]


def read(model: type[T], path: Path, where: str) -> T:
    """Read and validate a file; `where` is its name in messages.

    Raises BadInputError that names the file, the key and the fix; FileNotFoundError.
    """
    data = reading.parse_toml(reading.text(path, where, most=reading.WRITTEN), where)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _explain(model, where, error) from error
    except RecursionError as error:
        raise errors.BadInputError(f"{where}: nested too deeply", next_step=f"correct {word(where)}") from error


def _explain(model: type[BaseModel], where: str, error: ValidationError) -> errors.BadInputError:
    """One line per mistake: the key and what is wrong with it; the fix of the first one."""
    lines, fix = [], ""
    for detail in error.errors(include_url=False):
        location = detail["loc"]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
        message = detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "extra_forbidden":
            keys = list(_table(model, location).model_fields)
            close = difflib.get_close_matches(str(location[-1]), keys, n=1)
            message = "unknown key" + (f"; did you mean `{close[0]}`?" if close else f"; known: {', '.join(keys)}")
            fix = fix or f"rename or remove `{line(key)}` in {word(where)}"
        lines.append(f"{where}: `{key}`: {message}")
        fix = fix or f"correct `{line(key)}` in {word(where)}"
    return errors.BadInputError("\n".join(lines), next_step=fix)


def _table(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    """The table that has the last key of a location."""
    for part in location[:-1]:
        if isinstance(part, str) and part in model.model_fields:
            model = _within(model.model_fields[part].annotation) or model
    return model


def _within(annotation: Any) -> type[BaseModel] | None:
    """The table in a field: itself, in a list, or as one of several types."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((table for part in get_args(annotation) if (table := _within(part))), None)
