"""What of the state this tool made itself: a message authentication code, with a key of this user outside the state.

The state may come from anywhere: a cache of CI, another container, an archive. What is costly to make again and has no
hash in the lock (an image, a root filesystem, an environment) is believed only with its seal, and only while its
content is what was sealed. Without the key, or with another one, it is made again.
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
    """Seal content with this digest as what it is; the seal is written to `path`."""
    write(path, _code(what, digest) + "\n", scratch)


def holds(path: Path, what: str, digest: str) -> bool:
    """Was content with this digest sealed as this?"""
    try:
        found = path.read_bytes().strip()
    except OSError:
        return False
    return hmac.compare_digest(found, _code(what, digest).encode())


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
    ahead = [folder]  # no recursion: a wheel may bring folders deeper than Python can follow
    while ahead:
        with os.scandir(ahead.pop()) as entries:
            for entry in entries:
                yield entry.path
                if entry.is_dir(follow_symlinks=False):
                    ahead.append(entry.path)


def _content(path: str) -> str:
    # Most files are small: one read each takes half the time of hashlib.file_digest.
    digest = hashlib.sha256()
    with Path(path).open("rb", buffering=0) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _code(what: str, digest: str) -> str:
    return hmac.new(_key(key_file()), json.dumps([what, digest]).encode(), "sha256").hexdigest()


def key_file() -> Path | None:
    """Where this user's key lies; None for a user without a home."""
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "vetted" / "seal.key"
    with suppress(RuntimeError):
        return Path.home() / ".local" / "state" / "vetted" / "seal.key"
    return None


@functools.cache
def _key(path: Path | None) -> bytes:
    """The key, made when there is none. Where it cannot be kept, or others may read it, one for this process only."""
    if path is not None:
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError), open(path, "xb", opener=_private) as file:
                file.write(secrets.token_bytes(SIZE))
            said = path.lstat()
            own = stat.S_ISREG(said.st_mode) and said.st_uid == os.geteuid() and not said.st_mode & 0o077
            if own and len(key := path.read_bytes()) == SIZE:
                return key
    return secrets.token_bytes(SIZE)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
