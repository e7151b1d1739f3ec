"""Licences that the packages of an image declare: read from the image's own files, and never guessed.

A wheel declares them in its METADATA, a Debian package in its copyright file, as short names of the machine-readable
format. A package that declares none where a machine can read it has none here.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from debian.deb822 import Deb822
from packaging.utils import canonicalize_name

from builder.image import oci
from builder.lock import metadata

METADATA = re.compile(r"opt/venv/lib/python3\.[0-9]+/site-packages/[^/]+\.dist-info/METADATA")
COPYRIGHT = re.compile(r"usr/share/doc/(?P<package>[^/]+)(?P<file>/copyright)?")
MACHINE_READABLE = re.compile(r"\AFormat: *https?://\S*copyright-format/1\.0/?\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Declared:
    """Licences by package: `python` distributions by their normalised names, `debian` packages by theirs."""

    python: Mapping[str, Sequence[str]]
    debian: Mapping[str, Sequence[str]]


def read(image: oci.Image) -> Declared:
    """The licences that the packages of an image declare. Raises BadInputError when a layer cannot be read."""
    python: dict[str, Sequence[str]] = {}
    copyrights: dict[str, str] = {}
    links: dict[str, str] = {}
    for path, content in oci.files(image, lambda name: bool(METADATA.fullmatch(name) or COPYRIGHT.fullmatch(name))):
        if isinstance(content, str):
            links[path] = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), content)).lstrip("/")
        elif COPYRIGHT.fullmatch(path):
            copyrights[path] = content.decode(errors="replace")
        else:
            name, declared = of_wheel(content.decode(errors="replace"))
            python[name] = declared
    debian = {}
    for path in (*copyrights, *(f"{link}/copyright" for link in links if not link.endswith("/copyright")), *links):
        if (package := COPYRIGHT.fullmatch(path)) and package["file"] and (text := _follow(path, copyrights, links)):
            debian[package["package"]] = of_debian(text)
    return Declared(python, debian)


def _follow(path: str, copyrights: Mapping[str, str], links: Mapping[str, str]) -> str | None:
    """The copyright file at a path, where the file or its folder may be a link, and its target again."""
    for _ in range(4):
        if path in copyrights:
            return copyrights[path]
        folder, file = posixpath.split(path)
        path = links.get(path) or posixpath.join(links.get(folder, folder), file)
    return None


def of_wheel(text: str) -> tuple[str, Sequence[str]]:
    """The normalised name of a distribution and the licences that its METADATA declares."""
    fields = metadata.parse(text)
    return canonicalize_name(fields.get("name", "")), metadata.licences(fields)


def of_debian(text: str) -> Sequence[str]:
    """The short names of licences in a Debian copyright file; none when it is not machine-readable."""
    if not MACHINE_READABLE.search(text):
        return ()
    fields = (str(paragraph.get("License", "")) for paragraph in Deb822.iter_paragraphs(text.splitlines()))
    names = (metadata.licence_name(field.partition("\n")[0]) for field in fields)
    return tuple(sorted({name for name in names if name}))
