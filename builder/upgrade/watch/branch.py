"""A branch of the project in a folder of its own, on which upgrades are tried: what is checked out stays as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors
from builder.base.project import Project, remove
from builder.base.text import word
from builder.lock import archives
from builder.upgrade.watch import git

PREFIX = "vetted/watch/"
FOLDER = "watch"  # of the repository: verdicts, drafts and reproducers


@dataclass(frozen=True)
class Branch(Project):
    """The project as it is on the branch. Environments and images are its own; downloads are shared."""

    home: Project
    stack: str

    @property
    def state(self) -> Path:
        return folder(self.home, self.stack) / "state"

    @property
    def own_stacks(self) -> None:
        """A stack of the user's own is in no commit of the project."""

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.stack}"


def folder(home: Project, stack: str) -> Path:
    return home.state / "watch" / stack


@contextmanager
def checked_out(home: Project, stack: str, expected: str) -> Iterator[Branch]:
    """The branch of a stack, made anew from HEAD. `expected`: the commit that an earlier watch left there, or "".

    Raises VettedError when the branch has commits of somebody else, or there is no clone.
    """
    name, own = f"{PREFIX}{stack}", folder(home, stack)
    if not git.commit(home.root, "HEAD"):
        raise errors.VettedError(
            f"{home.root} is no git repository with a commit",
            cause="watch writes a branch; a downloaded archive has none",
            next_step="git init, git add, git commit; or vetted outdated",
        )
    there = git.commit(home.root, f"refs/heads/{name}")
    if there and there != expected and not git.contains(home.root, "HEAD", there):
        raise errors.VettedError(
            f"the branch {name} has commits that are not watch's; it stays as it is",
            cause="somebody works on it",
            next_step=f"merge it, or git branch -D {word(name)}",
        )
    tree = own / "tree"
    _forget(home, tree)  # of a run that was killed
    git.check(home.root, "worktree", "add", "--quiet", "--force", "-B", name, str(tree), "HEAD")
    prefix = git.check(home.root, "rev-parse", "--show-prefix")
    branch = Branch(tree / prefix, home, stack)
    _share_downloads(branch)
    try:
        if home.stack_dir(stack).is_dir() and not branch.stack_dir(stack).is_dir():
            where = home.relative(home.stack_dir(stack))
            raise errors.BadInputError(
                f"no commit has {where}",
                cause="watch works on a branch of HEAD, and this stack is not committed yet",
                next_step=f"git add {word(where)} && git commit",
            )
        yield branch
    finally:
        _forget(home, tree)
        for name in ("host", "images", "aside"):
            remove(branch.state / name)


def commit(branch: Branch, subject: str, paths: Sequence[str], scratch: Path) -> str:
    """Commit these paths of the branch; returns the commit. Raises VettedError.

    Of what others wrote, the message has names and versions alone: a forge reads commands in messages, code or not.
    """
    message = scratch / "message"
    message.write_text(f"{subject}\n\n{FOLDER}/{branch.stack}/verdict.md says why.\n", encoding="utf-8")
    there = [path for path in paths if (branch.root / path).exists()]
    git.check(branch.root, "add", "--all", "--", *there)
    git.check(branch.root, "add", "--all", "--force", "--", FOLDER)  # a .gitignore may have this name
    git.check(
        branch.root, "commit", "--quiet", "--no-verify", "--cleanup=verbatim", "--file", str(message),
        next_step="git config user.name NAME; git config user.email ADDRESS",
    )  # fmt: skip
    return git.commit(branch.root, "HEAD")


def _share_downloads(branch: Branch) -> None:
    branch.state.mkdir(parents=True, exist_ok=True)
    for downloads in ("debs", archives.FOLDER):
        (branch.home.state / downloads).mkdir(parents=True, exist_ok=True)
        if not (branch.state / downloads).exists():
            (branch.state / downloads).symlink_to(branch.home.state / downloads)


def _forget(home: Project, tree: Path) -> None:
    """Remove the folder of a branch; its commits stay."""
    remove(tree)
    git.run(home.root, "worktree", "prune")
