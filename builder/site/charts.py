"""The charts with axes: Vega-Lite specifications (charts/*.json), drawn as SVG when the site is made.

Nothing of Vega reaches a browser. Colours are variables of the page's style sheet, so that a chart follows the theme.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from builder.base import text

_ROLES = re.compile(r' (role="graphics-[a-z]+"|aria-[a-z]+="[^"]*"|pointer-events="none")')
FOLDER = Path(__file__).parent / "charts"


def draw(name: str, rows: Sequence[Mapping[str, object]], label: str) -> Markup:
    """The chart `charts/<name>.json` of these rows as inline SVG; `label` says in a sentence what it shows.

    Empty without rows.
    """
    if not rows:
        return Markup("")
    import vl_convert  # heavy, and only this command needs it

    specification = {**_read(name), "datasets": {"rows": [_printable(row) for row in rows]}}
    svg = vl_convert.vegalite_to_svg(specification, config=_read("config"))
    # To a screen reader it is one picture with a name: the marks within have none. Tables have the numbers.
    svg = _ROLES.sub("", svg)
    return Markup('<svg role="img" aria-label="{}" ').format(text.line(label)) + Markup(svg.removeprefix("<svg "))


def _printable(row: Mapping[str, object]) -> dict[str, object]:
    return {key: text.line(value, 80) if isinstance(value, str) else value for key, value in row.items()}


@cache
def _read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return document
