"""Public keys: which one a file holds, and which are revoked.

A key is named by the sha256 of its one DER encoding: `openssl pkey -pubin -in cosign.pub -outform DER | sha256sum`
prints it. keys/revoked.txt lists revoked keys, one a line; VETTED_REVOKED_KEYS names a second such file.
"""

from __future__ import annotations

import base64
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors
from builder.base.project import Project
from builder.base.text import word
from builder.publish import der

BLOCK = re.compile(rb"-----BEGIN PUBLIC KEY-----\s+([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----")
LARGEST = 64 << 10  # bytes of a file with a key
REVOKED, VARIABLE = "keys/revoked.txt", "VETTED_REVOKED_KEYS"


@dataclass(frozen=True)
class PublicKey:
    """A public key as it was read, once; `der` is its one encoding. Nothing else of its file is ever used."""

    der: bytes

    @property
    def fingerprint(self) -> str:
        """The sha256 of the key, in hexadecimal."""
        return der.fingerprint(self.der)

    @property
    def pem(self) -> str:
        """The key as cosign writes it."""
        lines = textwrap.wrap(base64.b64encode(self.der).decode(), 64)
        return "\n".join(["-----BEGIN PUBLIC KEY-----", *lines, "-----END PUBLIC KEY-----", ""])


def trusted(project: Project, files: Sequence[Path]) -> tuple[PublicKey, ...]:
    """These public keys. Raises BadInputError when one is revoked, or no public key."""
    return tuple(refuse_revoked(project, path) for path in files)


def write(keys: Sequence[PublicKey], folder: Path) -> tuple[Path, ...]:
    """Write keys that were read into a folder of their own, for cosign: a file that was replaced since is not read."""
    (target := folder / "keys").mkdir(exist_ok=True)
    files = tuple(target / f"cosign-{number}.pub" for number in range(1, len(keys) + 1))
    for path, key in zip(files, keys, strict=True):
        path.write_text(key.pem, encoding="ascii")
    return files


def refuse_revoked(project: Project, path: Path) -> PublicKey:
    """The key in a file. Raises BadInputError when it is revoked, or when there is none."""
    key = read(path)
    for where, revoked in _revoked(project):
        if key.fingerprint == revoked:
            raise errors.BadInputError(
                f"the key in {path} is revoked: sha256 {revoked} is in {where}",
                cause="it was lost or stolen, or another one took its place",
                next_step="ask whoever publishes the images for the new cosign.pub",
            )
    return key


def read(path: Path) -> PublicKey:
    """The one public key in a file. Raises BadInputError when there is none, or one in an encoding of its own."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise errors.BadInputError(
            f"there is no public key {path}",
            next_step="ask whoever published the image for cosign.pub; a key pair: cosign generate-key-pair",
        ) from error
    if b"PRIVATE KEY" in content:
        raise errors.BadInputError(
            f"{path} is a private key: it signs, and must stay where it signs", next_step="--key cosign.pub"
        )
    if b"-----BEGIN PUBLIC KEY-----" not in content:
        raise errors.BadInputError(
            f"{path} is not a public key of cosign's: no PEM block PUBLIC KEY in it", next_step="--key cosign.pub"
        )
    blocks = BLOCK.findall(content)
    try:
        if len(content) > LARGEST:
            raise ValueError("the file is too large")  # what is not read could hold another key
        if len(blocks) != 1 or content.count(b"-----BEGIN ") != 1:
            raise ValueError("it is not one key")
        key = PublicKey(base64.b64decode(b"".join(blocks[0].split()), validate=True))
        der.check(key.der)
        return key
    except ValueError as error:
        raise errors.BadInputError(
            f"{path} cannot be read as a public key: {error}",
            cause="the file was cut short, holds more than one key, or a key that is not encoded as cosign encodes it",
            next_step="one key a file, as cosign wrote it; --key may be given more than once",
        ) from error


def _revoked(project: Project) -> Iterator[tuple[str, str]]:
    """Every revoked key, by its file as a person would name it. Raises BadInputError."""
    # A link that leads nowhere is a list that cannot be read, not an empty one.
    files = [project.root / REVOKED] if os.path.lexists(project.root / REVOKED) else []
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
                next_step=f"look at {word(where)}",
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
