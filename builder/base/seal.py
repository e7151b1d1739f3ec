"""Seals: proof that this user of this machine made what lies in the state.

A seal is a message authentication code, with a key of this user that lies outside the state. The state may come from
anywhere: a CI cache, another container, an archive. What is costly to make again and has no hash in the lock (an image,
a root filesystem, an environment) is used again only with its seal, and only while its content is what was sealed.
Without the key, or with another one, it is made again.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from builder.base.project import write

SIZE = 32  # bytes of the key


def put(path: Path, what: str, digest: str, scratch: Path) -> None:
    """Seal content with this digest as `what`, such as the environment of a lock. The seal is written to `path`."""
    write(path, _code(what, digest) + "\n", scratch)


def intact(path: Path, what: str, digest: str) -> bool:
    """Was content with this digest sealed as `what`?"""
    try:
        code = path.read_bytes().strip()
    except OSError:
        return False
    return hmac.compare_digest(code, _code(what, digest).encode())


def tree(folder: Path) -> str:
    """The digest of everything below a folder: paths, modes, contents, and targets of links. Raises OSError."""
    identity = hashlib.sha256()
    for path in sorted(_below(str(folder))):
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            content = str(Path(path).readlink())
        elif stat.S_ISREG(mode):
            content = _content(path)
        else:
            content = ""
        identity.update(json.dumps([path[len(str(folder)) :], mode, content]).encode())
    return "sha256:" + identity.hexdigest()


def _below(folder: str) -> Iterator[str]:
    pending = [folder]  # no recursion: a wheel may bring folders deeper than Python can follow
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                yield entry.path
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)


def _content(path: str) -> str:
    # Most files are small: this takes half the time of hashlib.file_digest.
    digest = hashlib.sha256()
    with Path(path).open("rb", buffering=0) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _code(what: str, digest: str) -> str:
    return hmac.new(_key(key_file()), json.dumps([what, digest]).encode(), "sha256").hexdigest()


def key_file() -> Path | None:
    """The file of this user's key; None for a user without a home folder."""
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "vetted" / "seal.key"
    with suppress(RuntimeError):
        return Path.home() / ".local" / "state" / "vetted" / "seal.key"
    return None


@functools.cache
def _key(path: Path | None) -> bytes:
    """This user's key, made where there is none. Where it cannot be stored safely, a key for this process only."""
    if path is not None:
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError), open(path, "xb", opener=_private) as file:
                file.write(secrets.token_bytes(SIZE))
            status = path.lstat()
            private = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
            if private and len(key := path.read_bytes()) == SIZE:
                return key
    return secrets.token_bytes(SIZE)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
