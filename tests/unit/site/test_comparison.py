"""From one stack to another: what changes, and how much of it a host pulls."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from builder.base.project import Project
from builder.lock.change import Change
from builder.site import comparison, history, stacks
from builder.site.comparison import Comparison
from builder.trajectory.record import Place
from tests import site_reader
from tests.conftest import TINY, Small
from tests.unit.site.conftest import Make
from tests.unit.trajectory import kit


@pytest.fixture
def step(real: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Comparison:
    monkeypatch.setattr(history, "versions", lambda *_: [])
    old, new = (stacks.read(real, name, tmp_path) for name in ("trl1.16-torch2.11-cu130", "trl1.16-cu130"))
    return Comparison(old, new)


def test_versions_are_those_of_the_locks(step: Comparison) -> None:
    changed = {change.name: (change.old, change.new) for change in step.versions}
    assert changed["torch"] == (step.old.lock.versions["torch"], step.new.lock.versions["torch"])
    assert "trl" not in changed


def test_the_other_way_is_the_same_step_back(step: Comparison) -> None:
    back = Comparison(step.new, step.old)
    assert {(change.old, change.new) for change in back.versions} == {(c.new, c.old) for c in step.versions}
    assert (back.gone, back.coming) == (step.coming, step.gone)
    assert not {advisory.id for advisory in step.gone} & {advisory.id for advisory in step.coming}


def test_a_host_pulls_the_layers_that_it_does_not_have(step: Comparison) -> None:
    assert step.old.image and step.new.image and step.pull
    have = {layer.digest for layer in step.old.image.layers}
    assert step.pull.bytes == sum(layer.bytes for layer in step.new.image.layers if layer.digest not in have)
    assert len(step.pull.at.split()) == sum(layer.digest not in have for layer in step.new.image.layers)
    same = Comparison(step.new, step.new)
    assert same.pull is None and same.versions == [] and same.facts == []


def test_what_was_not_recorded_is_said(step: Comparison) -> None:
    old, new = replace(step.old, records=[]), replace(step.new, records=[])
    assert Comparison(old, new).training == [] and Comparison(old, new).not_recorded == [old.name, new.name]
    assert Comparison(replace(old, records=[kit.make(1)]), new).not_recorded == [new.name]


def test_the_training_of_both_is_judged(step: Comparison) -> None:
    """Each with each of one device; a pair that cannot be compared says why."""

    def shifted(_name: str, _step: int, value: float) -> float:
        return value + 1

    gpu = Place(device="cuda", engine="host", hardware="a GPU")
    old = replace(step.old, records=[kit.make(1, stack="old"), kit.make(1, stack="old", place=gpu)])
    other = kit.make(2, stack="new", task="sha256:" + "1" * 64)
    new = replace(step.new, records=[kit.make(2, stack="new"), kit.make(3, stack="new", change=shifted), other])
    same, moved, strange = map(str, Comparison(old, new).training)
    assert same.startswith("old → new: the training does not change")
    assert moved.startswith("old → new: the training changes: ")
    assert strange.endswith("not compared: old and new did not train the same task")
    assert Comparison(replace(old, records=old.records[1:]), new).training == []


@pytest.mark.usefixtures("no_history")
def test_the_page_shows_the_verdict(small: Small, make: Make) -> None:
    second = shutil.copytree(small.project.stack_dir(TINY), small.project.stack_dir("second"))

    def page() -> str:
        path = make(small.project).output / "compare" / TINY / "second.html"
        return " ".join(site_reader.read(path.read_text()).text.split())

    assert f"Not recorded: {TINY} and second have no golden trajectories." in page()
    golden = kit.make(1, stack=TINY)
    for folder, name in ((small.project.stack_dir(TINY), TINY), (second, "second")):
        (folder / "trajectories").mkdir()
        (folder / "trajectories" / "cpu-host.json").write_text(golden.model_copy(update={"stack": name}).to_json())
    shown = page()
    assert f"{TINY} → second: the training is the same, to the last bit, in 12 of 12 seeds" in shown
    assert f"vetted trajectories second --against {TINY} runs it again" in shown


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("1.2.3", "2.0", "major"), ("1.2", "1.3.1", "minor"), ("1.2", "1.2.1", "patch"),
        ("1.2.3.4", "1.2.3.5", "patch"),
        ("1.3", "1.2", "minor, older"), ("2.0+cpu", "2.0+cu130", "build"), (None, "1", "added"), ("1", None, "removed"),
    ],
)  # fmt: skip
def test_what_a_change_touches(old: str | None, new: str | None, part: str) -> None:
    assert comparison.part(Change("x", old, new)) == part
