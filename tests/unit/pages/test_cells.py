"""Cells of the generated tables: numbers as precise as a reader needs, text escaped once."""

from __future__ import annotations

import pytest

from builder.pages import cells
from builder.pages.cells import Markdown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (3.0, "3"), (120304, "120304"), (1024.0, "1024"), (0.123456, "0.123"), (1.5e-7, "1.5e-07"),
     (-2.0, "-2"), (1e300, "1e+300"), (1234.5, "1.23e+03")],
)  # fmt: skip
def test_a_whole_number_is_shown_whole(value: float, shown: str) -> None:
    assert cells.number(value) == shown


def test_a_bound_is_shown_by_its_signs() -> None:
    assert cells.bound({"at_least": 120304, "at_most": 0.5}) == "≥ 120304 ≤ 0.5"
    assert cells.bound(None) == ""


def test_cells_are_escaped_unless_they_are_markdown() -> None:
    rows: list[list[object]] = [["a | b", 1], [Markdown("**bold**"), cells.link("a_b]", "docs/x y.md")]]
    assert cells.table(["*name*", cells.code("n|m")], rows) == (
        "| \\*name\\* | <code>n&#124;m</code> |\n"
        "|---|---|\n"
        "| a &#124; b | 1 |\n"
        f"| **bold** | [a_b\\]]({cells.ROOT}/docs/x%20y.md) |\n"
    )
