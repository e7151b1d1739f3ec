"""Files that a person writes in TOML: data, never code, and answered with file, key and fix where they are wrong."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from builder.base import errors, reading


class Table(BaseModel):
    """A table of such a file: nothing is converted, and what it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


T = TypeVar("T", bound=Table)


def one_line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("must be one line of printable text")
    return value


Line = Annotated[str, AfterValidator(one_line)]


def read(model: type[T], path: Path, where: str) -> T:
    """Read and validate a file; `where` is how a person would name it.

    Raises BadInputError that names file, key and fix; FileNotFoundError when there is none.
    """
    data = reading.parse_toml(reading.text(path, where, most=reading.WRITTEN), where)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _explain(model, where, error) from error
    except RecursionError as error:
        raise errors.BadInputError(f"{where}: nested too deeply", next_step=f"correct {where}") from error


def _explain(model: type[BaseModel], where: str, error: ValidationError) -> errors.BadInputError:
    """One line per finding: the key and what is wrong with it; the fix of the first one."""
    lines, fix = [], ""
    for detail in error.errors(include_url=False):
        location = detail["loc"]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
        message = detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "extra_forbidden":
            known = list(_table(model, location).model_fields)
            close = difflib.get_close_matches(str(location[-1]), known, n=1)
            message = "unknown key" + (f"; did you mean `{close[0]}`?" if close else f"; known: {', '.join(known)}")
            fix = fix or f"rename or remove `{key}` in {where}"
        lines.append(f"{where}: `{key}`: {message}")
        fix = fix or f"correct `{key}` in {where}"
    return errors.BadInputError("\n".join(lines), next_step=fix)


def _table(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    """The table that the last key of a location stands in."""
    for part in location[:-1]:
        if isinstance(part, str) and part in model.model_fields:
            model = _within(model.model_fields[part].annotation) or model
    return model


def _within(annotation: Any) -> type[BaseModel] | None:
    """The table that a field holds: itself, in a list, or as one of several possibilities."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _within(one))), None)
