"""What wheels bring along beside Python code: shared libraries, and bills of materials (see nested.py).

Read out of the image's layers, a piece at a time: the libraries of a GPU stack are gigabytes. A library's version is
what its file name says, or a string in it that is known to be one; where neither says anything, nothing is said.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from packaging.utils import canonicalize_name

from builder.base import text
from builder.image import oci
from builder.publish import nested
from builder.publish.nested import Part

SITE = r"opt/venv/lib/python3\.[0-9]+/site-packages/"
LIBRARY = re.compile(
    rf"{SITE}(?P<path>[^\n]*?(?:[^/\n]+\.libs/[^/\n]+\.so[^/\n]*|(?<=/)lib[^/\n]*\.so(?:\.[0-9][^/\n]*)?))"
)
EXTENSION = re.compile(r"\.(?:cpython-[^/]*|abi3)\.so$")  # a module of Python, not a library
BILL = re.compile(rf"{SITE}(?P<info>[^/\n]+)\.dist-info/sboms/(?P<file>[^\n]+)")
RECORD = re.compile(rf"{SITE}(?P<info>[^/\n]+)\.dist-info/RECORD")
# libcrypto-5409cd36.so.1.1.1k: auditwheel adds the eight digits
NAMED = re.compile(r"(?P<name>lib.+?)(?:-[0-9a-f]{8})*\.so(?:\.(?P<version>[0-9][0-9A-Za-z.]{0,40}))?")
PIECE = 8 << 20  # bytes that are looked at at once
OVERLAP = 256
SCANNED = 256 << 20  # bytes of a library that are looked at for a version
LONGEST = 4096  # characters of a path
MOST_PARTS = 20_000  # components that all bills together name; those of a CPU stack name 900
MOST = 5000  # libraries, and bills, of an image; a CPU stack has 90 and 20
OPENSSL = re.compile(
    rb"OpenSSL ([0-9]+\.[0-9]+\.[0-9]+[a-z]{0,2})[^\0]{0,12} [0-9]{1,2} [A-Z][a-z]{2} [0-9]{4}"
)  # with its day
# A string that stands in a library, what begins with it, and whose version that is.
KNOWN: Sequence[tuple[bytes, re.Pattern[bytes], str]] = (
    (b"OpenSSL ", OPENSSL, "openssl"),
    (b"deflate ", re.compile(rb"deflate ([0-9]+\.[0-9]+(?:\.[0-9]+){0,2}) Copyright"), "zlib"),
    (b"libpng version ", re.compile(rb"libpng version ([0-9]+\.[0-9]+\.[0-9]+)"), "libpng"),
    (b"libcurl/", re.compile(rb"libcurl/([0-9]+\.[0-9]+\.[0-9]+)"), "curl"),
    (b"FFmpeg version ", re.compile(rb"FFmpeg version n?([0-9]+(?:\.[0-9]+){1,2})"), "ffmpeg"),
    (b"OpenBLAS ", re.compile(rb"OpenBLAS ([0-9]+\.[0-9]+\.[0-9]+)"), "openblas"),
    (b"LIBTIFF, Version ", re.compile(rb"LIBTIFF, Version ([0-9]+\.[0-9]+\.[0-9]+)"), "libtiff"),
    (b"libjpeg-turbo version ", re.compile(rb"libjpeg-turbo version ([0-9]+\.[0-9]+\.[0-9]+)"), "libjpeg-turbo"),
)  # fmt: skip


@dataclass(frozen=True)
class Library:
    """A shared library in site-packages. `known`: names and versions that its bytes tell."""

    path: str
    sha256: str
    version: str | None
    known: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass
class Bundled:
    """By distribution (normalised name; "" for what belongs to none) in a fixed order."""

    libraries: dict[str, list[Library]] = field(default_factory=dict)
    parts: dict[str, list[Part]] = field(default_factory=dict)
    ignored: dict[str, list[str]] = field(default_factory=dict)


def read(image: oci.Image, distributions: Mapping[str, str]) -> Bundled:
    """What the wheels of these distributions (name to version) bring along. Raises BadInputError."""
    found = Bundled()
    libraries: dict[str, Library] = {}
    owners: dict[str, str] = {}
    bills: dict[tuple[str, str], list[Part]] = {}
    ignored: dict[tuple[str, str], list[str]] = {}
    many = 0
    for name, size, content in oci.members(image, _wanted):
        if isinstance(content, str):
            continue  # a link: what it leads to is listed
        if match := BILL.fullmatch(name):
            owner, file = _owner(match["info"], distributions), text.line(match["file"], 100)
            if len(bills) == MOST:
                many += 1
                continue
            parts, ignored[owner, file] = _bill(content, size, owner)
            if sum(map(len, bills.values())) + len(parts) > MOST_PARTS:
                many, parts = many + 1, []
            bills[owner, file] = parts
        elif match := RECORD.fullmatch(name):
            if size <= oci.LARGEST:
                owners.update(dict.fromkeys(_recorded(content.read(size)), _owner(match["info"], distributions)))
        elif match := LIBRARY.fullmatch(name):
            path = match["path"]
            if len(libraries) == MOST and path not in libraries:
                many += 1
                continue
            libraries[path] = _library(path, content)
    for path, library in sorted(libraries.items()):
        folder = path.partition("/")[0].removesuffix(".libs")
        owner = owners.get(path) or _owner(folder, distributions)
        found.libraries.setdefault(owner, []).append(library)
    for (owner, file), parts in sorted(bills.items()):
        unique = dict.fromkeys([*found.parts.get(owner, ()), *parts])
        found.parts[owner] = list({(one.name, one.version, one.purl): one for one in unique}.values())
        found.ignored.setdefault(owner, []).extend(f"sboms/{file}: {why}" for why in ignored[owner, file])
    if many:
        found.ignored.setdefault("", []).append(f"{many} libraries or bills of materials: too many")
    return found


def _wanted(name: str) -> bool:
    if len(name) > LONGEST:
        return False
    library = LIBRARY.fullmatch(name) and not EXTENSION.search(name)
    return bool(library or BILL.fullmatch(name) or RECORD.fullmatch(name))


def _owner(info: str, distributions: Mapping[str, str]) -> str:
    """The distribution whose folder is called `name-version` or `name`; "" when there is none of that name."""
    name = canonicalize_name(info.rpartition("-")[0] or info)
    return (
        name if name in distributions else canonicalize_name(info) if canonicalize_name(info) in distributions else ""
    )


def _recorded(content: bytes) -> list[str]:
    """The libraries in a list of installed files."""
    try:
        return [row[0] for row in csv.reader(content.decode(errors="replace").splitlines()) if row and ".so" in row[0]]
    except csv.Error:
        return []


def _bill(content: IO[bytes], size: int, owner: str) -> tuple[list[Part], list[str]]:
    if size > oci.SMALL:
        return [], [f"it is larger than {oci.SMALL >> 20} MB"]
    try:
        return nested.read(content.read(), owner)
    except nested.UnreadableError as error:
        return [], [str(error)]


def _library(path: str, content: IO[bytes]) -> Library:
    known: set[tuple[str, str]] = set()
    digest, before, seen = hashlib.sha256(), b"", 0
    while piece := content.read(PIECE):
        digest.update(piece)
        if seen < SCANNED and len(known) < 16:
            known |= _versions(before + piece)
            before, seen = piece[-OVERLAP:], seen + len(piece)
    named = NAMED.fullmatch(path.rpartition("/")[2])
    version = named["version"] if named else None
    if version is None and len(known) == 1:
        version = next(iter(known))[1]
    return Library(text.line(path, 300), digest.hexdigest(), version, tuple(sorted(known)))


def _versions(piece: bytes) -> set[tuple[str, str]]:
    """Names and versions that stand in these bytes."""
    found = set()
    for anchor, pattern, name in KNOWN:
        at, left = piece.find(anchor), 16
        while at >= 0 and left:
            if match := pattern.match(piece, at):
                found.add((name, match[1].decode()))
            at, left = piece.find(anchor, at + 1), left - 1
    return found
