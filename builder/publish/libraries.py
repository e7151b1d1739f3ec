"""What wheels vendor beside Python code: shared libraries, and bills of materials (see nested.py).

They are read from the image's layers, a piece at a time: the libraries of a GPU stack are gigabytes. The version of a
library is the one in its file name, or a known version string in its bytes; else it has none.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from packaging.utils import canonicalize_name

from builder.base import quantities, text
from builder.image import oci
from builder.publish import nested
from builder.publish.nested import NestedComponent

SITE = r"opt/venv/lib/python3\.[0-9]+/site-packages/"
LIBRARY = re.compile(
    rf"{SITE}(?P<path>[^\n]*?(?:[^/\n]+\.libs/[^/\n]+\.so[^/\n]*|(?<=/)lib[^/\n]*\.so(?:\.[0-9][^/\n]*)?))"
)
EXTENSION = re.compile(r"\.(?:cpython-[^/]*|abi3)\.so$")  # a module of Python, not a library
BILL = re.compile(rf"{SITE}(?P<info>[^/\n]+)\.dist-info/sboms/(?P<file>[^\n]+)")
RECORD = re.compile(rf"{SITE}(?P<info>[^/\n]+)\.dist-info/RECORD")
# libcrypto-5409cd36.so.1.1.1k: auditwheel adds the eight digits
NAMED = re.compile(r"(?P<name>lib.+?)(?:-[0-9a-f]{8})*\.so(?:\.(?P<version>[0-9][0-9A-Za-z.]{0,40}))?")
PIECE = 8 << 20  # bytes that are read at once
OVERLAP = 256
SCANNED = 256 << 20  # bytes of a library that are searched for a version
LONGEST = 4096  # characters of a path
MOST_COMPONENTS = 20_000  # of all bills together; those of a CPU stack name 900
MOST = 5000  # libraries, and bills, of an image; a CPU stack has 90 and 20
OPENSSL = re.compile(
    rb"OpenSSL ([0-9]+\.[0-9]+\.[0-9]+[a-z]{0,2})[^\0]{0,12} [0-9]{1,2} [A-Z][a-z]{2} [0-9]{4}"
)  # with its day
VERSIONS = 16  # names and versions of one library
# A string in a library, the pattern that begins with it, and the project that the version belongs to.
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
    """A shared library in site-packages. `versions`: projects and versions by the strings in its bytes."""

    path: str
    sha256: str
    version: str | None
    versions: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass
class Vendored:
    """What wheels vendor, by distribution (normalised name; "" for what belongs to none), in a fixed order."""

    libraries: dict[str, list[Library]] = field(default_factory=dict)
    components: dict[str, list[NestedComponent]] = field(default_factory=dict)
    ignored: dict[str, list[str]] = field(default_factory=dict)


class _Reader:
    """Collects what the members of an image's layers vendor, up to the limits."""

    def __init__(self, distributions: Mapping[str, str]) -> None:
        self.distributions = distributions
        self.libraries: dict[str, Library] = {}  # by path
        self.owners: dict[str, str] = {}  # of libraries, by path
        self.bills: dict[tuple[str, str], list[NestedComponent]] = {}  # by distribution and file
        self.ignored: dict[tuple[str, str], list[str]] = {}
        self.surplus = 0

    def bill(self, match: re.Match[str], size: int, content: IO[bytes]) -> None:
        if len(self.bills) == MOST:
            self.surplus += 1
            return
        owner, file = self.owner(match["info"]), text.line(match["file"], 100)
        components, self.ignored[owner, file] = _bill(content, size, owner)
        if sum(map(len, self.bills.values())) + len(components) > MOST_COMPONENTS:
            self.surplus, components = self.surplus + 1, []
        self.bills[owner, file] = components

    def record(self, match: re.Match[str], size: int, content: IO[bytes]) -> None:
        if size <= oci.LARGEST:
            self.owners.update(dict.fromkeys(_recorded(content.read(size)), self.owner(match["info"])))

    def library(self, path: str, content: IO[bytes]) -> None:
        if len(self.libraries) == MOST and path not in self.libraries:
            self.surplus += 1
        else:
            self.libraries[path] = _library(path, content)

    def owner(self, info: str) -> str:
        """The distribution whose folder is called `name-version` or `name`; "" when there is none of that name."""
        names = (canonicalize_name(info.rpartition("-")[0] or info), canonicalize_name(info))
        return next((name for name in names if name in self.distributions), "")

    def result(self) -> Vendored:
        vendored = Vendored()
        for path, library in sorted(self.libraries.items()):
            owner = self.owners.get(path) or self.owner(path.partition("/")[0].removesuffix(".libs"))
            vendored.libraries.setdefault(owner, []).append(library)
        for (owner, file), components in sorted(self.bills.items()):
            unique = dict.fromkeys([*vendored.components.get(owner, ()), *components])
            by_identity = {(component.name, component.version, component.purl): component for component in unique}
            vendored.components[owner] = list(by_identity.values())
            reasons = (f"sboms/{file}: {reason}" for reason in self.ignored[owner, file])
            vendored.ignored.setdefault(owner, []).extend(reasons)
        if self.surplus:
            vendored.ignored.setdefault("", []).append(f"{self.surplus} libraries or bills of materials: too many")
        return vendored


def read(image: oci.Image, distributions: Mapping[str, str]) -> Vendored:
    """What the wheels of these distributions (name to version) vendor. Raises BadInputError."""
    reader = _Reader(distributions)
    for name, size, content in oci.members(image, _is_read):
        if isinstance(content, str):
            continue  # a link: its target is listed
        if match := BILL.fullmatch(name):
            reader.bill(match, size, content)
        elif match := RECORD.fullmatch(name):
            reader.record(match, size, content)
        elif match := LIBRARY.fullmatch(name):
            reader.library(match["path"], content)
    return reader.result()


def _is_read(name: str) -> bool:
    if len(name) > LONGEST:
        return False
    library = LIBRARY.fullmatch(name) and not EXTENSION.search(name)
    return bool(library or BILL.fullmatch(name) or RECORD.fullmatch(name))


def _recorded(content: bytes) -> list[str]:
    """The libraries in a list of installed files."""
    try:
        return [row[0] for row in csv.reader(content.decode(errors="replace").splitlines()) if row and ".so" in row[0]]
    except csv.Error:
        return []


def _bill(content: IO[bytes], size: int, owner: str) -> tuple[list[NestedComponent], list[str]]:
    if size > oci.SMALL:
        return [], [f"it is larger than {quantities.size(oci.SMALL)}"]
    try:
        return nested.read(content.read(), owner)
    except nested.UnreadableError as error:
        return [], [str(error)]


def _library(path: str, content: IO[bytes]) -> Library:
    versions: set[tuple[str, str]] = set()
    digest, before, scanned = hashlib.sha256(), b"", 0
    while piece := content.read(PIECE):
        digest.update(piece)
        if scanned < SCANNED and len(versions) < VERSIONS:
            versions |= _versions(before + piece)
            before, scanned = piece[-OVERLAP:], scanned + len(piece)
    named = NAMED.fullmatch(path.rpartition("/")[2])
    version = named["version"] if named else None
    if version is None and len(versions) == 1:
        version = next(iter(versions))[1]
    return Library(text.line(path, 300), digest.hexdigest(), version, tuple(sorted(versions)))


def _versions(piece: bytes) -> set[tuple[str, str]]:
    """Names and versions in these bytes."""
    versions = set()
    for anchor, pattern, name in KNOWN:
        at, left = piece.find(anchor), 16
        while at >= 0 and left:
            if match := pattern.match(piece, at):
                versions.add((name, match[1].decode()))
            at, left = piece.find(anchor, at + 1), left - 1
    return versions
