"""`vetted watch --open` without the forge's program: said before anything is tried, and by a dry run."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests import parts
from tests.conftest import TINY, Small
from tests.unit.conftest import Command

ADDRESS = "git@{host}.example.org:team/vetted.git"
GH, GLAB = "https://cli.github.com", "https://gitlab.com/gitlab-org/cli"


@pytest.fixture
def clone(wheels: Small, monkeypatch: pytest.MonkeyPatch) -> Small:
    """A repository, on a machine without gh and glab."""
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name in ("gh", "glab") else real(name))
    subprocess.run([parts.git(), "init", "--quiet"], cwd=wheels.root, check=True)
    return wheels


def origin(clone: Small, host: str) -> None:
    subprocess.run([parts.git(), "remote", "add", "origin", ADDRESS.format(host=host)], cwd=clone.root, check=True)


@pytest.mark.parametrize(
    ("host", "what", "next_step"),
    [
        ("github", "gh is not installed", f"install gh ({GH}) and log in: gh auth login; or"),
        ("gitlab", "glab is not installed", f"install glab ({GLAB}) and log in: glab auth login; or"),
        ("forge", "gh or glab is not installed", f"install gh ({GH}) and log in: gh auth login; or"),
    ],
)
def test_it_ends_before_anything_is_tried_and_says_so(
    clone: Small, command: Command, host: str, what: str, next_step: str
) -> None:
    origin(clone, host)
    answer = command(clone.root, "watch", TINY, "--engine", "host", "--open")
    assert (answer.code, answer.out) == (4, "")
    first, cause, then = answer.err.splitlines()
    assert first == f"vetted: {what}; nothing is tried without it"
    assert cause.startswith("usual cause: ") and "PATH" in cause
    assert then == f"next: {next_step} vetted watch without --open"
    assert "branch" not in answer.err and "push" not in answer.err


def test_a_dry_run_says_what_would_fail_and_ends_as_without_open(clone: Small, command: Command) -> None:
    origin(clone, "github")
    clone.issue()
    plain, dry = (
        command(clone.root, "watch", TINY, "--dry-run", *more, "--engine", "host") for more in ((), ("--open",))
    )
    assert (plain.code, dry.code, dry.err) == (0, 0, plain.err)
    line, then, *rest = dry.out.splitlines()
    assert line == "--open would fail: gh is not installed; nothing is tried without it"
    assert then.startswith(f"next: install gh ({GH})")
    assert rest == plain.out.splitlines()
    answer = command(clone.root, "watch", TINY, "--dry-run", "--open", "--json").json[TINY]
    assert answer["not_opened"] == "gh is not installed; nothing is tried without it"


def test_a_dry_run_names_a_missing_remote_too(clone: Small, command: Command) -> None:
    clone.issue()
    answer = command(clone.root, "watch", TINY, "--dry-run", "--open")
    assert answer.code == 0
    assert answer.out.splitlines()[0] == "--open would fail: this clone has no remote origin"
