"""Which Vetted this is: its version, and how it was installed."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from builder import __version__
from builder.base import errors, process

PATIENCE = 10.0  # seconds for git


def line() -> str:
    """`vetted 0.1.0, a clone in FOLDER, commit`; or `vetted 0.1.0, installed by uv in FOLDER`."""
    folder = Path(__file__).parents[2]
    if (folder / "lockfiles").is_dir():
        return f"vetted {__version__}, a clone in {folder}, {_commit(folder) or 'without a commit'}"
    try:
        installer = (metadata.distribution("vetted").read_text("INSTALLER") or "").strip()
    except metadata.PackageNotFoundError:
        installer = ""
    return f"vetted {__version__}, installed{f' by {installer}' if installer else ''} in {folder}"


def _commit(folder: Path) -> str | None:
    """The commit that is checked out, with `-dirty` when files were changed; None when git cannot say."""
    argv = ["git", "-c", f"safe.directory={folder}", "-c", "core.fsmonitor=false", "describe", "--always", "--dirty"]
    try:
        result = process.run(argv, env={"GIT_OPTIONAL_LOCKS": "0"}, cwd=folder, timeout=PATIENCE)
    except (errors.VettedError, OSError):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
