"""Making a lock with the real uv, from a wheelhouse and without a network."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from builder.base import errors, machine
from builder.intent import stack
from builder.intent.stack import Stack
from builder.lock import debian, lockfile, resolve, solver
from builder.lock.lockfile import Entry
from tests.conftest import TINY
from tests.unit.lock.conftest import Bench


def test_a_lock_holds_everything_that_is_needed_with_the_hash_of_its_file(bench: Bench) -> None:
    sha256 = bench.offer("needed", "3.0")
    bench.offer("picky", "1.0", "needed", "unwanted")
    bench.require("tiny-lib==1.0", "picky")
    assert bench.lock() is True
    lock = bench.small.lock
    assert lock.versions == {"needed": "3.0", "picky": "1.0", "tiny-lib": "1.0"}
    assert lock.python[0] == Entry("needed", "3.0", sha256)
    assert lock.intent == lockfile.intent(lock.stack)
    assert lock.epoch == resolve.EPOCH["bookworm"]
    assert lock.build == ()


def test_locking_again_changes_nothing(bench: Bench) -> None:
    bench.lock()
    before = bench.written
    assert bench.lock() is False
    assert bench.written == before


def test_a_lock_names_no_path_of_the_machine(bench: Bench) -> None:
    bench.lock()
    assert b"wheelhouse" not in b"".join(bench.written.values())
    assert str(bench.small.root).encode() not in b"".join(bench.written.values())


def test_a_locked_version_stays_until_an_upgrade_is_asked_for(bench: Bench) -> None:
    for name in ("one", "two"):
        bench.offer(name, "1.0")
    bench.require("one", "two")
    bench.small.edit("stack.toml", 'package = "tiny-lib"', 'package = "one"')
    bench.lock()
    for name in ("one", "two"):
        bench.offer(name, "2.0")
    assert bench.lock() is False
    assert bench.versions == {"one": "1.0", "two": "1.0"}
    assert bench.lock(["two"]) is True
    assert bench.versions == {"one": "1.0", "two": "2.0"}


def test_the_base_layer_stays_as_it_was_locked(bench: Bench) -> None:
    before = bench.small.lock.debian
    bench.offer("one", "1.0")
    bench.require("tiny-lib==1.0", "one")
    assert bench.lock() is True
    assert bench.small.lock.debian == before
    assert before


def test_a_base_layer_that_lacks_what_its_device_needs_is_locked_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.offer("tiny-lib", "1.0")
    bench.lock()
    bench.small.edit("stack.toml", 'device = "cpu"', 'device = "cuda"')
    needed = [Entry(name, "1", "0" * 64) for name in sorted(debian.for_device(bench.small.lock.stack))]
    devices = []

    def resolved(stack: Stack, _: Path) -> list[Entry]:
        devices.append(stack.device)
        return needed

    monkeypatch.setattr(debian, "resolve", resolved)
    assert bench.lock() is True and bench.small.lock.debian == tuple(needed)
    assert bench.lock() is False and devices == ["cuda"]


def test_versions_that_exclude_each_other_are_a_bad_input_with_uvs_words(bench: Bench) -> None:
    bench.offer("needed", "3.0")
    bench.offer("picky", "1.0", "needed<3")
    bench.require("needed==3.0", "picky==1.0")
    before = bench.written
    with pytest.raises(errors.BadInputError, match="the stack has no solution") as caught:
        bench.lock()
    assert "picky" in caught.value.what and "needed" in caught.value.what
    assert "[[override]]" in caught.value.next_step
    assert bench.written == before


@pytest.mark.parametrize(
    ("requirement", "cause"),
    [
        ("needed==9.0", "the index has no needed==9.0 for this Python and platform, or the name is misspelt"),
        ("nothing-such", "the index has no nothing-such for this Python and platform, or the name is misspelt"),
    ],
)
def test_what_the_index_does_not_have_is_no_conflict(bench: Bench, requirement: str, cause: str) -> None:
    bench.offer("needed", "3.0")
    bench.require("tiny-lib==1.0", requirement)
    with pytest.raises(errors.BadInputError, match="the stack has no solution") as caught:
        bench.lock()
    assert caught.value.cause == cause
    assert "constraints.txt" not in caught.value.what


@pytest.mark.parametrize(
    ("package", "words", "step"),
    [
        ("nothing-such", "not in this lock: nothing-such", f"vetted outdated {TINY}"),
        ("needing", "not in this lock: needing; did you mean needed?", f"vetted lock {TINY} --upgrade needed"),
        ("needed>=3", "'needed>=3': an upgrade takes a name", "into `requires` of stack.toml"),
        ("", "'' is not a package to upgrade", "--upgrade NAME"),
        ("tiny-lib>1", "tiny-lib stays at 1.0", f"vetted recertify {TINY} --upgrade tiny-lib, or"),
        ("tiny_lib", "tiny-lib stays at 1.0", f"vetted recertify {TINY} --upgrade tiny-lib, or"),
        ("tiny-lib==2.0", "tiny-lib stays at 1.0", f"vetted recertify {TINY} --upgrade tiny-lib==2.0, or"),
    ],
)
def test_an_upgrade_that_can_move_nothing_is_a_bad_input(bench: Bench, package: str, words: str, step: str) -> None:
    bench.offer("needed", "3.0")
    bench.require("tiny-lib==1.0", "needed")
    bench.lock()
    before = bench.written
    with pytest.raises(errors.BadInputError, match=words) as caught:
        bench.lock([package])
    assert step in caught.value.next_step
    assert bench.written == before


def test_a_pin_that_was_moved_by_hand_is_upgraded(bench: Bench) -> None:
    bench.offer("needed", "3.0")
    bench.require("tiny-lib==1.0", "needed==3.0")
    bench.lock()
    bench.offer("needed", "4.0")
    bench.require("tiny-lib==1.0", "needed==4.0")
    assert bench.lock(["needed"])
    assert bench.versions["needed"] == "4.0"


@pytest.mark.usefixtures("dead_index")
def test_an_index_that_does_not_answer_is_a_matter_of_the_network(bench: Bench) -> None:
    before = bench.written
    with pytest.raises(errors.NetworkError, match="the network did not answer") as caught:
        bench.lock()
    assert caught.value.exit_code == 5
    assert "HTTPS_PROXY" in caught.value.next_step
    assert bench.written == before


def test_a_wheel_for_another_system_is_not_locked(bench: Bench) -> None:
    (wheel,) = bench.small.wheelhouse.iterdir()
    wheel.rename(wheel.with_name("tiny_lib-1.0-py3-none-win_amd64.whl"))
    with pytest.raises(errors.BadInputError, match="tiny-lib"):
        bench.lock()


def test_the_index_of_torch_is_not_asked_for_what_the_wheelhouse_has(bench: Bench) -> None:
    bench.require("torch==2.13.0+cpu")
    changed = stack.load(bench.small.project, TINY)
    assert solver.torch_backend(changed) == "cpu"
    (bench.small.wheelhouse / "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl").touch()
    assert solver.torch_backend(changed) is None


def test_what_is_written_is_toml_and_says_not_to_edit_it(bench: Bench) -> None:
    bench.lock()
    assert set(tomllib.loads(bench.small.file("lock.toml").read_text())) == {"intent", "epoch"}
    for text in bench.written.values():
        assert text.startswith(f"# Written by `vetted lock {TINY}` from stack.toml: do not edit.\n".encode())


def test_uv_is_the_one_of_the_tool_itself() -> None:
    assert machine.uv_binary().startswith("/")
