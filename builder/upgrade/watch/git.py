"""git, as `watch` needs it: quiet, without hooks, and with an error that says what to do next."""

from __future__ import annotations

from pathlib import Path

from builder.base import errors, process

QUIET = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def run(root: Path, *argv: str, remote: bool = False) -> process.Result:
    """Run git on a clone. `remote`: it may log in to other machines."""
    own = ["-c", f"safe.directory={root.resolve()}"]
    tool = "git-fetch" if remote else ""
    return process.run(["git", *own, *QUIET, *argv], env=ENVIRONMENT, cwd=root, tool=tool)


def check(root: Path, *argv: str, next_step: str = "", remote: bool = False) -> str:
    """What git prints. Raises VettedError when it fails."""
    result = run(root, *argv, remote=remote)
    if result.returncode != 0:
        raise errors.VettedError(
            f"git {argv[0]} failed\n{result.output.strip()[-600:]}", next_step=next_step or "git status"
        )
    return result.stdout.strip()


def contains(root: Path, name: str, commit: str) -> bool:
    """Whether a commit is one of the history of what a name leads to."""
    return run(root, "merge-base", "--is-ancestor", commit, name).returncode == 0


def commit(root: Path, name: str) -> str:
    """The commit that a name leads to; "" when there is none."""
    result = run(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return result.stdout.strip() if result.returncode == 0 else ""
