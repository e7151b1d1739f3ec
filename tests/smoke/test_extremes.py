"""A number that is not finite fails a probe, wherever among others it was measured."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest

from smoke.kit import extremes

from .conftest import ROOT

FILES = sorted(
    (*(ROOT / "smoke/probes").glob("*.py"), *(ROOT / "smoke/own").glob("*.py"), *(ROOT / "smoke/kit").glob("*.py"))
)


@pytest.mark.parametrize("values", [[1.0, math.nan, 2.0], [math.nan, 1.0, 2.0], [1.0, 2.0, math.nan]])
def test_nan_is_never_skipped(values: list[float]) -> None:
    places = dict(zip("abc", values, strict=True))
    assert math.isnan(extremes.largest(values))
    assert math.isnan(extremes.smallest(values))
    assert math.isnan(extremes.worst((value, place) for place, value in places.items())[0])
    assert math.isnan(extremes.outermost(places)[0])
    assert math.isnan(extremes.outermost(places, least=True)[0])


def test_extremes_of_numbers() -> None:
    values = {"a": 1.0, "b": -2.0, "c": math.inf}
    assert extremes.largest(values.values()) == math.inf
    assert extremes.smallest(values.values()) == -2
    assert extremes.worst((value, place) for place, value in values.items()) == (math.inf, "c")
    assert extremes.outermost(values) == (math.inf, "c: inf; a: 1; b: -2")
    assert extremes.outermost(values, least=True) == (-2, "b: -2; a: 1; c: inf")


def test_extremes_of_nothing() -> None:
    assert extremes.largest([], default=0.0) == 0
    assert math.isnan(extremes.smallest([], default=math.nan))
    for extreme in (extremes.largest, extremes.smallest, extremes.worst):
        with pytest.raises(ValueError, match="empty"):
            extreme([])


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_no_reading_is_taken_from_the_built_in_functions(file: Path) -> None:
    """max([0.1, nan]) is 0.1."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Reading":
            names = [
                call.func.id
                for call in ast.walk(node)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
            ]
            assert not {"max", "min"} & {*names}, f"line {node.lineno}"
