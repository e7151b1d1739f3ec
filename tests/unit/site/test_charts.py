"""The charts show what the records say; each specification names only fields that its rows have."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from builder.base.project import Project
from builder.pages import images
from builder.site import charts, history, pages, proof, stacks

DRAW = charts.draw  # before the fixture of this folder replaces it


def fields(node: object) -> set[str]:
    """The fields that a specification names."""
    if isinstance(node, list):
        return set().union(*map(fields, node))
    if isinstance(node, dict):
        own = {str(node["field"])} if isinstance(node.get("field"), str) else set()
        return own.union(*map(fields, node.values()))
    return set()


ROWS: dict[str, dict[str, object]] = {
    "validity": {"name": "a · b", "from": "2026-01-01", "to": "2026-04-01", "state": "certified"},
    "sizes": {"image": "a", "layer": "torch", "bytes": 5, "place": 0},
    "seconds": {"certificate": "2026-01-01 today", "seconds": 5.5},
    "nearness": {"certificate": "2026-01-01 today", "probe": "loss", "nearness": 0.5},
    "controls": {"control": "a", "set": "known bad", "suite": "red", "outcome": "failed"},
    "mutants": {"package": "trl", "outcome": "killed", "count": 3, "place": 0},
    "alarms": {"probe": "loss", "low": 0.1, "median": 0.2, "high": 0.3},
}


def test_every_chart_is_tested() -> None:
    assert {path.stem for path in charts.FOLDER.glob("*.json")} == {*ROWS, "config"}


@pytest.mark.parametrize("name", ROWS)
def test_a_specification_names_fields_of_its_rows(name: str) -> None:
    named = fields(json.loads((charts.FOLDER / f"{name}.json").read_text()))
    assert named <= ROWS[name].keys()


def test_a_chart_is_one_picture_in_the_colours_of_the_page() -> None:
    svg = DRAW("mutants", [ROWS["mutants"]], 'Mutants & "others"')
    root = ElementTree.fromstring(svg)
    assert (root.get("role"), root.get("aria-label")) == ("img", 'Mutants & "others"')
    assert "var(--good)" in svg and "style=" not in svg
    assert "http" not in svg.replace("http://www.w3.org/", "")


def test_without_rows_there_is_no_chart() -> None:
    assert DRAW("mutants", [], "Mutants") == ""


def test_the_rows_of_the_suite_are_those_of_the_records(real: Project) -> None:
    read = proof.read(real)
    assert read.controls and read.mutants and read.alarms
    controls = proof.control_rows(read)
    assert len(controls) == 2 * len(read.controls.rows)
    red = {row["control"] for row in controls if row["set"] == "known bad" and row["suite"] == "red"}
    assert len(red) == read.controls.caught
    assert not [row for row in controls if row["set"] == "made good" and row["suite"] == "red"]
    killed = sum(int(str(row["count"])) for row in proof.mutant_rows(read) if row["outcome"] == "killed")
    assert killed == read.mutants.total.killed
    for row in proof.alarm_rows(read):
        assert 0 <= float(str(row["low"])) <= float(str(row["median"])) <= float(str(row["high"])) <= 1


def test_the_rows_of_sizes_are_those_of_the_record(
    real: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "versions", lambda *_: [])
    stack = stacks.read(real, "trl1.16-cpu", tmp_path)
    layers = images.measured(real)["trl1.16-cpu"].layers
    assert [(row["layer"], row["bytes"]) for row in pages.size_rows([stack])] == [
        (layer.name, layer.bytes) for layer in layers
    ]
