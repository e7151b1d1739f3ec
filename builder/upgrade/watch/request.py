"""A pull or merge request for a branch, by the program of its forge: `gh` or `glab`."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

from builder.base import errors, process
from builder.base.project import Project
from builder.base.text import word
from builder.upgrade.watch import git

REMOTE = "origin"
# An alias of ~/.ssh/config has no dot: the program does not know it.
HOST = re.compile(r"(?:\w+://)?(?:[^@/]*@)?([\w-]+(?:\.[\w-]+)+)[:/]")
PROGRAMS = {"gh": "https://cli.github.com", "glab": "https://gitlab.com/gitlab-org/cli"}


def program(home: Project) -> str:
    """The forge's program: by the address of `origin`, else the one that is installed. Raises VettedError."""
    address = git.run(home.root, "remote", "get-url", REMOTE).stdout.strip()
    if not address:
        raise errors.VettedError(
            f"this clone has no remote {REMOTE}", next_step=f"git remote add {REMOTE} ADDRESS, or watch without --open"
        )
    named = [name for word, name in (("github", "gh"), ("gitlab", "glab")) if word in address.lower()] or list(PROGRAMS)
    installed = [name for name in named if shutil.which(name)]
    if not installed:
        first = named[0]
        raise errors.MissingToolError(
            f"{' or '.join(named)} is not installed; nothing is tried without it",
            cause="--open calls it to open the request, and PATH does not have it; a timer's PATH is often shorter",
            next_step=f"install {word(first)} ({PROGRAMS[first]}) and log in: {word(first)} auth login; "
            "or vetted watch without --open",
        )
    _require_login(home, installed[0], address)
    return installed[0]


def _require_login(home: Project, forge: str, address: str) -> None:
    """Raises MissingToolError unless the program says that it is logged in to the host of `address`."""
    named = HOST.match(address)
    host = named[1] if named else ""
    status = process.run([forge, "auth", "status", *(["--hostname", host] if host else [])], cwd=home.root)
    if status.returncode != 0:
        raise errors.MissingToolError(
            f"{forge} is not logged in{f' to {host}' if host else ''}; nothing is tried without it",
            cause=f"{forge} auth status failed: {' '.join(status.output.split())[:200] or 'it said nothing'}",
            next_step=f"{word(forge)} auth login{f' --hostname {word(host)}' if host else ''}; "
            "or vetted watch without --open",
        )


def open_(home: Project, forge: str, branch: str, expected: str, subject: str, verdict: Path) -> str:
    """Push a branch, and open its request or bring it up to date; returns what the program prints, an address.

    `expected`: the commit that an earlier watch pushed; another one there is somebody's work, and is not overwritten.
    """
    there = git.check(home.root, "ls-remote", REMOTE, f"refs/heads/{branch}", remote=True).split()
    here = git.commit(home.root, f"refs/heads/{branch}")
    if there[:1] != [here]:
        lease = f"--force-with-lease=refs/heads/{branch}:{expected if there else ''}"
        git.check(
            home.root, "push", "--quiet", lease, REMOTE, f"refs/heads/{branch}",
            next_step=f"git log {REMOTE}/{word(branch)}: somebody else's commits are not overwritten", remote=True,
        )  # fmt: skip
    text = verdict.read_text(encoding="utf-8")
    if forge == "gh":
        exists = _is_open(home, ["gh", "pr", "view", branch, "--json", "state"], "OPEN")
        argv = ["gh", "pr", "edit", branch] if exists else ["gh", "pr", "create", "--head", branch]
        return _run(home, [*argv, "--title", subject, "--body-file", str(verdict)])
    exists = _is_open(home, ["glab", "mr", "view", branch, "--output", "json"], "opened")
    argv = ["glab", "mr", "update", branch] if exists else ["glab", "mr", "create", "--source-branch", branch]
    return _run(home, [*argv, "--title", subject, "--description", text, "--yes"])


def _is_open(home: Project, argv: list[str], state: str) -> bool:
    result = process.run(argv, cwd=home.root)
    try:
        return result.returncode == 0 and json.loads(result.stdout).get("state") == state
    except (ValueError, AttributeError):
        return False


def _run(home: Project, argv: list[str]) -> str:
    result = process.run(argv, cwd=home.root)
    if result.returncode != 0:
        raise errors.NetworkError(
            f"{argv[0]} failed\n{result.output.strip()[-600:]}",
            cause="not logged in, or not allowed to open a request",
            next_step=f"{word(argv[0])} auth status; then {shlex.join(argv[:5])} …",
        )
    return result.stdout.strip().splitlines()[-1] if result.stdout.strip() else ""
