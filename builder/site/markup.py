"""Values as HTML: escaped once, numbers with the place that they are from, and the templates that show them."""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from math import isfinite
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from builder.base import quantities, text
from builder.pages import cells

HERE = Path(__file__).parent
LONGEST = 400  # characters of a line that a stranger may have written
_CODE = re.compile(r"`([^`]+)`")


def shown(value: object) -> str:
    """A number as people read it: three significant digits. Anything else as one line."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    return str(cells.number(value)) if isinstance(value, int | float) else text.line(str(value), LONGEST)


def data(value: object, at: str, written: str = "") -> Markup:
    """A number, and where it is from: `data-at` has the file of this site and the JSON pointer in it.

    Within an element with `data-of`, `at` continues what that says. Several places are added. `/length` at the end of a
    pointer to a list is the number of its entries. A test follows every one (tests/unit/site/test_trace.py).
    """
    return Markup(element(value, at, written))


def element(value: object, at: str, written: str = "") -> str:
    """The HTML of `data`, for what joins thousands of them."""
    place = _attribute(at)
    number = type(value) is int or (isinstance(value, float) and isfinite(value))
    if number and not written:  # nothing of it needs to be escaped
        return f'<data value="{value!r}" data-at="{place}">{shown(value)}</data>'
    return f'<data value="{escape(json.dumps(value))}" data-at="{place}">{escape(written or shown(value))}</data>'


@lru_cache(maxsize=4096)
def _attribute(value: str) -> str:
    return str(escape(value))


def size(value: int, at: str) -> Markup:
    """A number of bytes, and where it is from."""
    return data(value, at, quantities.size(value))


def bound(limits: dict[str, object] | None, at: str) -> Markup:
    """The bounds of a number by their signs, each with its place."""
    return Markup(" ").join(
        escape(quantities.SIGNS[kind]) + " " + data(limit, f"{at}/{kind}") for kind, limit in (limits or {}).items()
    )


def pointer(name: str) -> str:
    """A key as a part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def prose(value: str) -> Markup:
    """Paragraphs of plain text; what is between two backticks is code."""
    paragraphs = re.split(r"\n\s*\n", text.printable(value).strip())
    return Markup("").join(Markup("<p>{}</p>").format(inline(paragraph)) for paragraph in paragraphs)


def inline(value: str) -> Markup:
    """A line of plain text; what is between two backticks is code."""
    parts = map(escape, _CODE.split(text.printable(value)))
    return Markup("").join(
        Markup("<code>") + part + Markup("</code>") if number % 2 else part for number, part in enumerate(parts)
    )


def short(digest: str) -> str:
    """The first digits of a digest."""
    return digest.removeprefix("sha256:")[:12]


def _printable(value: object) -> object:
    return value if isinstance(value, Markup) or not isinstance(value, str) else text.printable(value)


@cache
def templates() -> Environment:
    """The templates. All that is no markup is escaped; a name that is not set is an error."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "shown": shown, "short": short, "prose": prose, "inline": inline, "pointer": pointer, "line": text.line,
    }  # fmt: skip
    environment.globals |= {"data": data, "size": size, "bound": bound}
    return environment
