"""Public keys: which one a file holds, and which are revoked.

A key is named by the sha256 of its DER encoding, which `openssl pkey -pubin -in cosign.pub -outform DER | sha256sum`
prints. keys/revoked.txt lists revoked keys, one a line; VETTED_REVOKED_KEYS names a second such file.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from builder.base import errors
from builder.base.project import Project, sha256

BLOCK = re.compile(rb"-----BEGIN PUBLIC KEY-----\s+([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----")
LARGEST = 64 << 10  # bytes of a file with a key
REVOKED, VARIABLE = "keys/revoked.txt", "VETTED_REVOKED_KEYS"


def trusted(project: Project, files: Sequence[Path]) -> tuple[Path, ...]:
    """The absolute paths of these public keys. Raises BadInputError when one is revoked, or no public key."""
    for path in files:
        refuse_revoked(project, path)
    return tuple(path.absolute() for path in files)


def refuse_revoked(project: Project, path: Path) -> None:
    """Raises BadInputError when a file contains a revoked key, or none at all."""
    digest = fingerprint(path)
    for where, revoked in _revoked(project):
        if digest == revoked:
            raise errors.BadInputError(
                f"the key in {path} is revoked: sha256 {digest} is in {where}",
                cause="it was lost or stolen, or another one took its place",
                next_step="ask whoever publishes the images for the new cosign.pub",
            )


def fingerprint(path: Path) -> str:
    """The sha256 of the one public key in a file, in hexadecimal. Raises BadInputError when there is none."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise errors.BadInputError(
            f"there is no public key {path}",
            next_step="ask whoever published the image for cosign.pub; a key pair: cosign generate-key-pair",
        ) from error
    if b"PRIVATE KEY" in text:
        raise errors.BadInputError(
            f"{path} is a private key: it signs, and must stay where it signs", next_step="--key cosign.pub"
        )
    if b"-----BEGIN PUBLIC KEY-----" not in text:
        raise errors.BadInputError(
            f"{path} is not a public key of cosign's: no PEM block PUBLIC KEY in it", next_step="--key cosign.pub"
        )
    blocks = BLOCK.findall(text)
    try:
        if len(blocks) != 1 or text.count(b"-----BEGIN ") != 1:
            raise ValueError("not one key")
        return sha256(base64.b64decode(b"".join(blocks[0].split()), validate=True)).removeprefix("sha256:")
    except ValueError as error:
        raise errors.BadInputError(
            f"{path} cannot be read as a public key",
            cause="the file was cut short, or holds more than one key",
            next_step="one key a file; --key may be given more than once",
        ) from error


def _revoked(project: Project) -> Iterator[tuple[str, str]]:
    """Every revoked key, by its file as a person would name it. Raises BadInputError."""
    files = [project.root / REVOKED] if (project.root / REVOKED).exists() else []
    if named := os.environ.get(VARIABLE):
        files.append(Path(named))
    for path in files:
        where = project.relative(path)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, IsADirectoryError, UnicodeDecodeError) as error:
            raise errors.BadInputError(
                f"{where}: the revoked keys cannot be read",
                cause=f"{VARIABLE} names another file, or the file was damaged",
                next_step=f"look at {where}",
            ) from error
        for number, line in enumerate(lines, start=1):
            digest = line.partition("#")[0].strip().lower().removeprefix("sha256:")
            if digest and not re.fullmatch(r"[0-9a-f]{64}", digest):
                raise errors.BadInputError(
                    f"{where}:{number}: not the sha256 of a key",
                    cause="the file names one key a line, by 64 hexadecimal digits",
                    next_step="openssl pkey -pubin -in cosign.pub -outform DER | sha256sum",
                )
            if digest:
                yield where, digest
