"""The suites and the locks of earlier commits: what is deployed today was often published some commits ago."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Iterator
from pathlib import Path

from builder.base import errors, process, sources, tarball
from builder.base.project import Project
from builder.certify import certificate
from builder.intent import stack
from builder.lock import lockfile
from builder.lock.lockfile import Lock

LOCKS = ("lockfiles", "images/patches")


def suites(project: Project, since: str, scratch: Path) -> dict[str, None]:
    """The digests of the suites at a commit and at every later one that changed smoke/. Raises BadInputError."""
    commit = _git(project, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{since}^{{commit}}").strip()
    if not commit:
        raise errors.BadInputError(
            f"`suite_since`: this clone has no commit {since}",
            cause="a clone without history, or a misspelt name",
            next_step="git fetch --unshallow --tags",
        )
    later = _git(project, "rev-list", "--reverse", f"{commit}..HEAD", "--", "smoke").split()
    digests: dict[str, None] = {}
    for each in (commit, *later):
        root = _at(project, each, ("smoke",), scratch)
        if (root / "smoke").is_dir():
            digests[sources.digest(root / "smoke")] = None
    return digests


def locks(project: Project, scratch: Path) -> Iterator[Lock]:
    """Every lock of the stacks as they are, and as they were while a certificate of today may have been issued.

    A lock of an earlier commit that today's Vetted cannot read is left out. Raises BadInputError for a clone whose
    history does not go back so far, and MissingToolError without git.
    """
    yield from _locks(project)
    first = certificate.today() - certificate.LIFETIME
    _require(project, first)
    for commit in _since(project, first):
        yield from _locks(Project(_at(project, commit, LOCKS, scratch)))


def is_known(project: Project) -> bool:
    """Whether the project is a clone, and no copy without a history."""
    return bool(_git(project, "rev-parse", "--git-dir"))


def _require(project: Project, first: datetime.date) -> None:
    """Of a clone that lacks a part of these days, locks would be missing in what is withdrawn."""
    if not shutil.which("git") and (project.root / ".git").exists():
        raise errors.MissingToolError(
            "git is not installed, and the locks of earlier commits count, too", next_step="apt-get install git"
        )
    # However far it seems to reach: the date of its last commit is what somebody wrote there.
    if _git(project, "rev-parse", "--is-shallow-repository").strip() == "true":
        raise errors.BadInputError(
            f"this clone is shallow, and the locks of all commits since {first} count",
            cause="CI clones a few commits only",
            next_step="git fetch --unshallow; in GitHub's checkout action, fetch-depth: 0",
        )


def _since(project: Project, first: datetime.date) -> list[str]:
    """The commits that changed a lock since a day, and the last one before: its locks were the stacks' that day.

    The date of a commit is what its author wrote. None is older than one that it comes after: git's own --since would
    end at a commit with a date of long ago, and take nothing of what lies behind it.
    """
    days: dict[str, int] = {}
    for line in _git(project, "rev-list", "--topo-order", "--reverse", "--timestamp", "--parents", "HEAD").splitlines():
        day, commit, *parents = line.split()
        days[commit] = max(int(day), *(days.get(parent, 0) for parent in parents), 0)
    begin = datetime.datetime.combine(first, datetime.time(), datetime.UTC).timestamp()
    changed = _git(project, "rev-list", "--topo-order", "--full-history", "HEAD", "--", *LOCKS).split()
    before = max((commit for commit in changed if days[commit] < begin), key=lambda commit: days[commit], default=None)
    return [*([before] if before else []), *(commit for commit in changed if days[commit] >= begin)]


def _locks(project: Project) -> Iterator[Lock]:
    for name in stack.names(project):
        try:
            yield from lockfile.load_all(project, name)
        except (errors.VettedError, OSError):
            continue


def _at(project: Project, commit: str, folders: tuple[str, ...], scratch: Path) -> Path:
    """Folders of the project as they were at a commit, in a folder of their own."""
    target = scratch / commit
    if target.is_dir():
        return target
    target.mkdir()
    for folder in folders:
        archive = scratch / "archive.tar"
        archive.unlink(missing_ok=True)
        _git(project, "archive", "--format=tar", f"--output={archive}", commit, "--", folder)
        if archive.is_file() and archive.stat().st_size:
            tarball.unpack(archive, target)
    return target


def _git(project: Project, *argv: str) -> str:
    """What git prints; "" if it fails: without git or a clone there is no history."""
    quiet = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    own = ["-c", f"safe.directory={project.root.resolve()}"] if (project.root / ".git").exists() else []
    env = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        result = process.run(["git", *own, *quiet, *argv], env=env, cwd=project.root)
    except errors.MissingToolError:
        return ""
    return result.stdout if result.returncode == 0 else ""
