"""Bills of materials inside wheels (PEP 770): what compiled code says that it was made of.

Packages wrote them, so nothing in them is believed to be well-formed: of CycloneDX and SPDX (both as JSON) only names,
versions, package URLs, hashes and licences are taken over, all of them short; what cannot be read is named.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from packageurl import PackageURL
from packaging.utils import canonicalize_name

from builder.base import strictjson, text

DEEPEST = 8  # levels of components in components
MOST = 2000  # components of one file
LONGEST = 200  # characters of a name, a version, a licence
LONGEST_URL = 500
LENGTHS = {"SHA-1": 40, "SHA-256": 64, "SHA-384": 96, "SHA-512": 128}
UNSAID = {"", "NOASSERTION", "NONE"}


@dataclass(frozen=True)
class Part:
    """A component, as a file in a wheel names it."""

    name: str
    version: str | None = None
    purl: str | None = None
    hashes: tuple[tuple[str, str], ...] = ()
    licences: tuple[str, ...] = ()


class UnreadableError(ValueError):
    """It is no bill of materials that is read here; says why."""


def read(content: bytes, distribution: str) -> tuple[list[Part], list[str]]:
    """The parts that a file in the wheel of a distribution names, and what was ignored. Raises UnreadableError."""
    try:
        said = strictjson.loads(content)
    except (ValueError, RecursionError):
        raise UnreadableError("it is not JSON that all readers read alike") from None
    if isinstance(said, dict) and said.get("bomFormat") == "CycloneDX":
        found = _cyclonedx(said)
    elif isinstance(said, dict) and str(said.get("spdxVersion", "")).startswith("SPDX-2"):
        found = _spdx(said)
    else:
        raise UnreadableError("it is neither CycloneDX nor SPDX 2")
    parts: dict[tuple[str, str | None, str | None], Part] = {}
    for part in found:
        if canonicalize_name(part.name) == distribution and not (part.purl or "").startswith("pkg:cargo/"):
            continue  # the distribution itself
        if len(parts) == MOST:
            return list(parts.values()), [f"all but the first {MOST} components"]
        parts.setdefault((part.name, part.version, part.purl), part)
    return list(parts.values()), []


def _cyclonedx(said: dict[str, Any]) -> Iterator[Part]:
    metadata = said.get("metadata")
    main = metadata.get("component") if isinstance(metadata, dict) else None
    waiting = deque([(0, main), *((0, one) for one in _list(said.get("components")))])
    while waiting:
        depth, one = waiting.popleft()
        if not isinstance(one, dict):
            continue
        if depth < DEEPEST:
            waiting += ((depth + 1, inner) for inner in _list(one.get("components")))
        if name := _line(one.get("name")):
            group = _line(one.get("group"))
            hashes = ((each.get("alg"), each.get("content")) for each in _dicts(one.get("hashes")))
            yield Part(
                f"{group}/{name}" if group else name, _line(one.get("version")), _purl(one.get("purl")),
                _hashes(hashes), tuple(_licences(one.get("licenses"))),
            )  # fmt: skip


def _licences(said: object) -> Iterator[str]:
    for one in _dicts(said)[:8]:
        inner = one.get("license")
        held = inner if isinstance(inner, dict) else {}
        if name := _line(one.get("expression")) or _line(held.get("id")) or _line(held.get("name")):
            yield name


def _spdx(said: dict[str, Any]) -> Iterator[Part]:
    for one in _dicts(said.get("packages")):
        if name := _line(one.get("name")):
            names = {"SHA1": "SHA-1", "SHA256": "SHA-256", "SHA384": "SHA-384", "SHA512": "SHA-512"}
            hashes = (
                (names.get(str(each.get("algorithm"))), each.get("checksumValue"))
                for each in _dicts(one.get("checksums"))
            )
            urls = (
                _purl(each.get("referenceLocator"))
                for each in _dicts(one.get("externalRefs"))
                if each.get("referenceType") == "purl"
            )
            declared = _line(one.get("licenseDeclared")) or ""
            yield Part(
                name, _line(one.get("versionInfo")), next((url for url in urls if url), None), _hashes(hashes),
                () if declared in UNSAID else (declared,),
            )  # fmt: skip


def _list(said: object) -> list[Any]:
    return said if isinstance(said, list) else []


def _dicts(said: object) -> list[dict[str, Any]]:
    return [one for one in _list(said) if isinstance(one, dict)]


def _line(said: object) -> str | None:
    """A short printable line, or nothing."""
    if not isinstance(said, str):
        return None
    return text.line(said.strip()[: LONGEST * 2], LONGEST) or None


def _purl(said: object) -> str | None:
    if not isinstance(said, str) or len(said) > LONGEST_URL or not said.isascii() or not said.isprintable():
        return None
    try:
        return PackageURL.from_string(said).to_string()
    except ValueError:
        return None


def _hashes(said: Iterator[tuple[object, object]]) -> tuple[tuple[str, str], ...]:
    found = {}
    for name, value in said:
        length = LENGTHS.get(name) if isinstance(name, str) else None
        if length and isinstance(value, str) and re.fullmatch(f"[0-9a-fA-F]{{{length}}}", value):
            found[str(name)] = value.lower()
    return tuple(sorted(found.items()))
