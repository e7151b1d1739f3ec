"""From one stack to another: what changes, and how much of it a host pulls."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base.project import Project
from builder.lock.change import Change
from builder.site import comparison, history, stacks
from builder.site.comparison import Comparison


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
