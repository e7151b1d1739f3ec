"""Attacks on the rules of `vetted policy`: by what a contributor writes into the history of the project."""

from __future__ import annotations

import datetime

from builder.certify import certificate
from tests.conftest import Small
from tests.registry.conftest import advise
from tests.unit.publish.policy.test_policy import commit, git, resolve


def lock(small: Small, days_ago: int) -> str:
    """A commit with another lock, of a day as its author writes it; returns the lock's digest."""
    small.edit("lock.toml", f"epoch = {small.lock.epoch}", f"epoch = {small.lock.epoch + 1}")
    commit(small, certificate.today() - datetime.timedelta(days=days_ago))
    return small.lock.digest.removeprefix("sha256:")


def test_a_commit_of_long_ago_hides_the_locks_before_it(small: Small) -> None:
    """Its author writes the date: git once stopped there, and no advisory withdrew what was deployed from earlier."""
    git(small, "init", "--quiet", "--initial-branch=main")
    locks = [lock(small, 20), lock(small, 10), lock(small, 9000), lock(small, 8000)]
    advise(small, certificate.today(), probe="beta")
    assert {entry.lock for entry in resolve(small).withdrawals} == set(locks)


def test_a_merged_commit_of_long_ago_hides_the_locks_that_it_grew_on(small: Small) -> None:
    """The merge is of today, but what comes before the commit once counted as older than it."""
    git(small, "init", "--quiet", "--initial-branch=main")
    locks = [lock(small, 20), lock(small, 10)]
    git(small, "checkout", "--quiet", "-b", "contribution")
    locks += [lock(small, 9000), lock(small, 9000)]
    git(small, "checkout", "--quiet", "main")
    git(small, "merge", "--quiet", "--no-ff", "--no-edit", "contribution")
    advise(small, certificate.today(), probe="beta")
    assert {entry.lock for entry in resolve(small).withdrawals} == set(locks)
