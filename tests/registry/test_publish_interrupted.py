"""A publish that is interrupted, or that somebody else interferes with: the tags are never wrong."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.base import errors
from builder.publish import attached, registry
from builder.publish import publish as publishing
from builder.publish.reference import Repository
from tests.commands import spawn
from tests.conftest import TINY, Small
from tests.registry.conftest import Keys, Stack, dated, publish, skopeo, tags, verify
from tests.unit.conftest import Command


class BrokenOffError(Exception):
    """What a test throws to end a publish between two steps."""


def run(stack: Stack, repository: Repository, keys: Keys, report: Callable[[str], None]) -> publishing.Publication:
    small = stack.small
    return publishing.publish(
        small.project, small.lock, stack.built, repository, str(keys.private), small.scratch(), report
    )


STEPS = ["asking", "making and signing", "pushing", "attaching", "comparing", "moving"]


@pytest.mark.parametrize("step", STEPS)
def test_broken_off_before_any_step_the_tag_is_the_old_one_and_the_same_command_finishes(
    command: Command, certified: Stack, repository: Repository, keys: Keys, step: str
) -> None:
    assert publish(command, certified, repository, keys).code == 0
    new = certified.another("new")

    def report(what: str) -> None:
        if what.startswith(step):
            raise BrokenOffError

    with pytest.raises(BrokenOffError):
        run(new, repository, keys, report)
    assert tags(repository) == {TINY: certified.image, dated(): certified.image}
    assert publish(command, new, repository, keys).code == 0
    assert tags(repository) == {TINY: new.image, dated(): new.image}
    assert verify(command, new, f"{repository}:{TINY}", keys).code == 0


@pytest.mark.parametrize("name", [TINY, None])
def test_a_tag_that_somebody_else_moved_in_between_is_left_alone(
    command: Command, certified: Stack, repository: Repository, keys: Keys, name: str | None
) -> None:
    moved = name or dated()
    publish(command, certified, repository, keys)
    theirs = certified.another("theirs")
    skopeo(f"oci:{theirs.built.image.layout}", f"docker://{repository}:theirs")
    new = certified.another("new")

    def report(what: str) -> None:
        if what.startswith("moving"):
            skopeo(f"docker://{repository}:theirs", f"docker://{repository}:{moved}")

    with pytest.raises(errors.VettedError, match=rf"somebody else moved the tag {moved} meanwhile") as caught:
        run(new, repository, keys, report)
    assert caught.value.exit_code == 1
    assert caught.value.what.splitlines()[1:] == [f"it named  {certified.image}", f"it names  {theirs.image}"]
    expected = {"theirs": theirs.image, TINY: certified.image, dated(): certified.image, moved: theirs.image}
    assert tags(repository) == expected
    assert publish(command, new, repository, keys).code == 0
    assert tags(repository)[TINY] == new.image


def test_attestations_that_somebody_else_replaced_in_between_move_no_tag(
    command: Command, certified: Stack, repository: Repository, keys: Keys, tmp_path: Path
) -> None:
    publish(command, certified, repository, keys)
    new = certified.another("new")

    def report(what: str) -> None:
        if what.startswith("comparing"):
            digest = attached.write(new.built.image, [], tmp_path / "empty")
            registry.push(repository, tmp_path / "empty", digest, attached.tag(new.image))

    with pytest.raises(errors.VettedError, match="is not what is there now; no tag was moved"):
        run(new, repository, keys, report)
    assert tags(repository)[TINY] == certified.image


def test_killed_at_ten_random_moments_the_tag_is_never_wrong(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    argv = ["-m", "builder", "publish", TINY, "--registry", str(repository), "--key", str(keys.private)]
    begin = time.monotonic()
    with spawn(argv, certified.root) as child:
        child.communicate()
    longest = time.monotonic() - begin
    assert registry.resolve(repository, TINY) == certified.image
    moments, good, broken_off = random.Random(0), {certified.image}, 0
    new = certified
    for part in range(10):
        before = registry.resolve(repository, TINY)
        new = certified.another(f"version {part}")
        good.add(new.image)
        with spawn(argv, certified.root) as child:
            time.sleep(longest * (part + moments.random()) / 10)
            child.send_signal(signal.SIGKILL)
        assert leftovers(certified.small) == []
        after = registry.resolve(repository, TINY)
        assert after in (before, new.image)
        broken_off += after == before
        answer = verify(command, new, f"{repository}:{TINY}", keys)
        assert answer.code == 0, answer.out
    assert broken_off > 0  # the first kills come before any request
    assert publish(command, new, repository, keys).code == 0
    assert tags(repository) == {TINY: new.image, dated(): new.image}


def leftovers(small: Small) -> list[str]:
    """Programs that work for this project still, after a moment in which their guards could end them."""
    for _ in range(100):
        lines = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
                if str(small.root) in line:
                    lines.append(line)
        if not lines:
            return []
        time.sleep(0.1)
    return lines
