"""The project's own packages as files: smoke/ and runtime/, listed, hashed and copied."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from builder.base import errors


def files(package: Path) -> list[Path]:
    """What a package of this project is made of: its Python files, relative to it, in order.

    They are hashed, they are copied, and there must be nothing else: a stray `probes/__init__.pyc` would be imported
    in place of a module. Python's own caches and hidden files are neither copied nor imported from. Raises
    BadInputError.
    """
    listed = []
    for folder, folders, names in os.walk(package):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for path in (Path(folder, name) for name in (*folders, *names) if not name.startswith(".")):
            if path.is_symlink() or (not path.is_dir() and (path.suffix != ".py" or not path.is_file())):
                raise errors.BadInputError(
                    f"{path} does not belong there: {package.name}/ holds Python files alone",
                    cause="a file was left behind by another program, or put there to be imported",
                    next_step=f"git status --ignored {package.name}, then remove it",
                )
            if path.suffix == ".py":
                listed.append(path.relative_to(package))
    return sorted(listed)


def digest(package: Path) -> str:
    """The identity of the suite, or of another package: every file of it, by path and content."""
    identity = hashlib.sha256()
    for file in files(package):
        content = (package / file).read_bytes()
        identity.update(f"{file}\0{len(content)}\0".encode())
        identity.update(content)
    return "sha256:" + identity.hexdigest()


def copy(smoke: Path, root: Path) -> str:
    """Copy the suite below `root`, so that what is spoken of is what ran even if somebody edits smoke/ meanwhile.

    Everybody may read the copy, whatever this process's umask is: the probes run as another user.
    """
    target = root / "smoke"
    for file in files(smoke):
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(smoke / file, target / file)
        (target / file).chmod(0o644)
    for folder in (root, target, *(path for path in target.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    return digest(target)
