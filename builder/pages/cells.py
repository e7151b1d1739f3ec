"""Text and numbers of the generated documents: escaped once, and as precise as a reader needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from builder.base import quantities, text
from builder.certify.catalogue import Limit

# The project's root in a link, until the page is known that shows it. Escaped text never contains this character.
ROOT = "\0"


class Markdown(str):
    """Text that is Markdown already. Tables escape everything else."""

    __slots__ = ()


DASH = Markdown("–")  # there is no such number


def escaped(value: object) -> Markdown:
    """The value as Markdown that shows it literally."""
    return value if isinstance(value, Markdown) else Markdown(text.markdown(str(value)))


def code(value: str) -> Markdown:
    return Markdown(text.code(value))


def codes(values: Iterable[str]) -> Markdown:
    """Names, each as code, separated by commas."""
    return joined(map(code, values), ", ")


def joined(values: Iterable[object], separator: str) -> Markdown:
    return Markdown(separator.join(map(escaped, values)))


def link(title: str, file: str) -> Markdown:
    """A link to a file of the project; `file` is relative to the project's root."""
    return Markdown(f"[{escaped(title)}]({ROOT}/{quote(file)})")


def table(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table. Cells are escaped unless they are Markdown already."""
    return _templates().get_template("table.md.j2").render(columns=columns, rows=rows)


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        finalize=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def number(value: float) -> Markdown:
    """Three significant digits; a whole number is shown whole."""
    whole = abs(value) < 1e15 and value == int(value)
    return Markdown(f"{value:.0f}" if whole else f"{value:.3g}")


def bound(limits: Limit | None) -> Markdown:
    """A bound by its signs, such as `≥ 0.5 ≤ 2`; empty when there is none."""
    return Markdown(quantities.bounds(limits, number))


def short(digest: str) -> Markdown:
    """The first digits of a digest."""
    return code(digest.removeprefix("sha256:")[:12])


def size(count: int) -> Markdown:
    """A number of bytes."""
    return Markdown(quantities.size(count))
