"""Licences, as the packages of an image declare them: read out of the image's own files, and never guessed.

A wheel says so in its METADATA: an SPDX expression, a line of free text, or trove classifiers. A Debian package says
so in its copyright file, in the short names of Debian's machine-readable format. Of what says nothing that a machine
can read, nothing is said.
"""

from __future__ import annotations

import email.parser
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from builder.image import oci

METADATA = re.compile(r"opt/venv/lib/python3\.[0-9]+/site-packages/[^/]+\.dist-info/METADATA")
COPYRIGHT = re.compile(r"usr/share/doc/(?P<package>[^/]+)(?P<file>/copyright)?")
MACHINE_READABLE = re.compile(r"\AFormat: *https?://\S*copyright-format/1\.0/?\s*$", re.MULTILINE)
LONGEST = 120  # of a licence's name; some put the whole text there


@dataclass(frozen=True)
class Declared:
    """By package: `python` distributions by their normalised names, `debian` packages by theirs."""

    python: Mapping[str, Sequence[str]]
    debian: Mapping[str, Sequence[str]]


def read(image: oci.Image) -> Declared:
    """What the packages of an image declare. Raises BadInputError when a layer cannot be read."""
    python: dict[str, Sequence[str]] = {}
    copyrights: dict[str, str] = {}
    links: dict[str, str] = {}
    for path, content in oci.files(image, lambda name: bool(METADATA.fullmatch(name) or COPYRIGHT.fullmatch(name))):
        package = COPYRIGHT.fullmatch(path)
        if isinstance(content, str):
            links[path] = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), content)).lstrip("/")
        elif package:
            copyrights[path] = content.decode(errors="replace")
        else:
            name, said = of_wheel(content.decode(errors="replace"))
            python[name] = said
    debian = {}
    for path in (*copyrights, *(f"{link}/copyright" for link in links if not link.endswith("/copyright")), *links):
        if (package := COPYRIGHT.fullmatch(path)) and package["file"] and (text := _follow(path, copyrights, links)):
            debian[package["package"]] = of_debian(text)
    return Declared(python, debian)


def _follow(path: str, copyrights: Mapping[str, str], links: Mapping[str, str]) -> str | None:
    """The copyright file at a path, where the file or its folder may be a link, and that one again."""
    for _ in range(4):
        if path in copyrights:
            return copyrights[path]
        folder, file = posixpath.split(path)
        path = links.get(path) or posixpath.join(links.get(folder, folder), file)
    return None


def of_wheel(metadata: str) -> tuple[str, Sequence[str]]:
    """The normalised name of a distribution and the licences that its METADATA declares."""
    said = email.parser.HeaderParser().parsestr(metadata)
    name = canonicalize_name(str(said.get("Name", "")))
    if expression := _line(str(said.get("License-Expression", ""))):
        return name, (expression,)
    if free := _line(str(said.get("License", ""))):
        return name, (free,)
    classified = [str(line) for line in said.get_all("Classifier", ()) if str(line).startswith("License :: ")]
    named = (_line(line.rpartition(" :: ")[2]) for line in classified if line != "License :: OSI Approved")
    return name, tuple(sorted({one for one in named if one}))


def of_debian(text: str) -> Sequence[str]:
    """The short names of licences in a Debian copyright file; none when it is not machine-readable."""
    if not MACHINE_READABLE.search(text):
        return ()
    return tuple(sorted({name for line in re.findall(r"^License:(.*)$", text, re.MULTILINE) if (name := _line(line))}))


def _line(text: str) -> str:
    """One printable line, or nothing: a licence's whole text is not its name."""
    text = text.strip()
    said = text.isprintable() and len(text) <= LONGEST and text.upper() not in ("UNKNOWN", "NONE")
    return text if said else ""
