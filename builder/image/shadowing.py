"""What the layer of an extension lays over those of its parent, read from the image itself.

A source distribution becomes a wheel in the build, and its code runs in the stage that then compares that wheel with
the parent's: it could change what compares. So the finished layers are compared here, where no foreign code ran.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from builder.base import errors
from builder.image import oci, overlap, render
from builder.image.oci import Image, Layer
from builder.lock import lockfile
from builder.lock.lockfile import Lock

VENV = "opt/venv/"
SITE = re.compile(r"^lib(64)?/python3[.][0-9]+/site-packages/")
REMOVED = ".wh."  # before the name of a file that a layer removes
CHUNK = 1 << 20


class _File(NamedTuple):
    """A file below the environment: as overlap.py says its path, and what it is."""

    path: str
    content: str


def refuse(lock: Lock, image: Image) -> None:
    """Raise BadInputError when what was built from own source lies over files of the parent, or runs unasked."""
    if not lock.own.source:
        return
    mine = sum(name.startswith(render.OWN) for name in render.layers(lock))
    theirs = {overlap.key(file.path): file for file in _files(image, image.layers[:-mine])}
    modules = {module: file.path for key, file in theirs.items() if (module := overlap.module(key))}
    own = {lockfile.normalise(name) for name in lock.own.python}
    wrong = [reason for file in _files(image, image.layers[-mine:]) if (reason := _reason(file, theirs, modules, own))]
    if wrong:
        raise errors.BadInputError(
            f"{lock.name}: what was built from own source changes what {lock.parent.name} was certified with\n"
            + overlap.in_words(wrong),
            cause="its build writes files of others, and hid that from the check inside the build",
            next_step="leave it out, or ask its authors why it does that",
        )


def _reason(file: _File, theirs: dict[str, _File], modules: dict[str, str], own: set[str]) -> str:
    """Why the layer must not have a file; empty when it may."""
    shown, key = file.path.removeprefix(overlap.SITE), overlap.key(file.path)
    there, module, record = theirs.get(key), overlap.module(key), overlap.RECORD.fullmatch(key)
    if shown.rpartition("/")[2].startswith(REMOVED):
        return f"the own layer removes {shown}"
    if overlap.STARTUP.fullmatch(key):
        return f"the own layer has {shown}, which every Python would run at its start"
    if there and there.content != file.content:
        return f"the own layer has another {shown} than the parent"
    if overlap.OWN_COMMANDS.fullmatch(key) and not there:
        return f"the own layer has {shown}, which is the image's own"
    if record and not there and lockfile.normalise(record["name"]) not in own:
        return f"the own layer has {shown}, which tells of a distribution that is not its own"
    if not there and module in modules:
        return f"the own layer has {shown}, which hides {modules[module].removeprefix(overlap.SITE)}"
    return ""


def _files(image: Image, layers: tuple[Layer, ...]) -> Iterator[_File]:
    """What these layers have below the environment, but folders. Raises BadInputError."""
    try:
        for layer in layers:
            with oci.tar(image.layout, layer) as archive:
                for member in archive:
                    name = member.name.removeprefix("./")
                    if member.isdir() or not name.startswith(VENV):
                        continue
                    what = "file" if member.isreg() else f"{member.type!r} {member.linkname}"
                    digest = hashlib.sha256(f"{what}\n".encode())
                    if member.isreg() and (stream := archive.extractfile(member)):
                        while chunk := stream.read(CHUNK):
                            digest.update(chunk)
                    yield _File(SITE.sub(overlap.SITE, name.removeprefix(VENV), count=1), digest.hexdigest())
    except oci.UNREADABLE as error:
        raise errors.BadInputError(
            f"a layer of {image.layout} cannot be read: {error}", next_step="build again"
        ) from error
