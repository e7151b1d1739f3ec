"""Moving an extension on: its own packages move, its parent's stay."""

from __future__ import annotations

import pytest

from builder.lock import lockfile
from builder.lock.lockfile import Lock
from tests.conftest import TINY, Small, make_wheel
from tests.unit.conftest import Command

MINE = "mine"


class Moving:
    """An extension, certified, and newer releases of all that is in it."""

    def __init__(self, small: Small, command: Command) -> None:
        self.small, self.command = small, command
        self.offer("extra", "1.0", "needed")
        self.offer("needed", "1.0")
        (small.root / "advisories").mkdir()
        (small.root / "mine.txt").write_text("extra\n")
        for argv in (("extend", TINY, "mine.txt", "--name", MINE), ("certify", MINE, "--engine", "host")):
            assert command(small.root, *argv).code == 0
        self.offer("tiny-lib", "2.0")
        self.offer("needed", "2.0", "tiny-lib")
        self.offer("extra", "2.0", "needed")
        self.offer("extra", "3.0", "tiny-lib>=2")

    def offer(self, name: str, version: str, *requires: str) -> None:
        make_wheel(self.small.wheelhouse, name, version, {f"{name.replace('-', '_')}.py": ""}, requires)

    @property
    def lock(self) -> Lock:
        return lockfile.load(self.small.project, MINE)


@pytest.fixture
def moving(wheels: Small, command: Command) -> Moving:
    return Moving(wheels, command)


def test_newer_releases_of_own_packages_are_listed_with_the_parents_pin_in_the_way(moving: Moving) -> None:
    (row,) = moving.command(moving.small.root, "outdated", MINE, "--json").json[MINE]
    assert (row["name"], row["locked"], row["newest"], row["fits"]) == ("extra", "1.0", "3.0", "2.0")
    assert "tiny-lib" in row["why_not"]


def test_an_own_package_moves_as_far_as_the_parent_lets_it(moving: Moving) -> None:
    before = moving.lock
    answer = moving.command(moving.small.root, "recertify", MINE, "--upgrade", "extra", "--engine", "host", "--json")
    assert answer.json["outcome"] == "green", answer.out + answer.err
    assert moving.lock.versions == {"extra": "2.0", "needed": "1.0", "tiny-lib": "1.0"}
    assert moving.lock.parent.digest == before.parent.digest


def test_without_a_request_what_no_pin_fixes_moves(moving: Moving) -> None:
    answer = moving.command(moving.small.root, "recertify", MINE, "--engine", "host", "--json")
    assert answer.json["outcome"] == "green", answer.out + answer.err
    assert moving.lock.versions == {"extra": "1.0", "needed": "2.0", "tiny-lib": "1.0"}


def test_the_parents_packages_are_refused(moving: Moving) -> None:
    answer = moving.command(moving.small.root, "recertify", MINE, "--upgrade", "tiny-lib", "--engine", "host")
    assert answer.code == 3
    assert "tiny-lib belongs to tiny, which mine extends" in answer.err
    assert "vetted recertify tiny --upgrade tiny-lib, then vetted extend tiny again" in answer.err
