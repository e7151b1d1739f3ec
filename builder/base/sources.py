"""The packages of this project that run elsewhere, smoke/ and runtime/, as files: listed, hashed and copied."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from builder.base import errors
from builder.base.text import word


def files(package: Path) -> list[Path]:
    """The Python files of a package, relative to it, in order. Raises BadInputError for any other file.

    A stray `probes/__init__.pyc` would be imported in place of a module. Python's own caches and hidden files are
    ignored: they are neither copied nor imported from.
    """
    modules = []
    for folder, folders, names in os.walk(package):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for path in (Path(folder, name) for name in (*folders, *names) if not name.startswith(".")):
            if path.is_symlink() or (not path.is_dir() and (path.suffix != ".py" or not path.is_file())):
                raise errors.BadInputError(
                    f"{path} does not belong there: {package.name}/ has Python files only",
                    cause="another program left a file there, or somebody put it there to be imported",
                    next_step=f"git status --ignored {word(package.name)}, then remove it",
                )
            if path.suffix == ".py":
                modules.append(path.relative_to(package))
    return sorted(modules)


def digest(package: Path) -> str:
    """The identity of the suite or another package: the digest of every file's path and content."""
    identity = hashlib.sha256()
    for file in files(package):
        content = (package / file).read_bytes()
        identity.update(f"{file}\0{len(content)}\0".encode())
        identity.update(content)
    return "sha256:" + identity.hexdigest()


def copy(smoke: Path, root: Path) -> str:
    """Copy the suite below `root` and return its digest: what runs is what was hashed, even if smoke/ is edited.

    Every user may read the copy, with any umask of this process: the probes run as another user.
    """
    target = root / "smoke"
    for file in files(smoke):
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(smoke / file, target / file)
        (target / file).chmod(0o644)
    for folder in (root, target, *(path for path in target.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    return digest(target)
