"""Bills of materials inside wheels (PEP 770), which name the components of compiled code.

Anybody may have written them, so nothing in them is trusted to be well-formed: of CycloneDX and SPDX 2 (both as JSON)
only names, versions, package URLs, hashes and licences are read, all of them short. What cannot be read is reported.
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
class NestedComponent:
    """A component that a bill in a wheel names."""

    name: str
    version: str | None = None
    purl: str | None = None
    hashes: tuple[tuple[str, str], ...] = ()
    licences: tuple[str, ...] = ()


class UnreadableError(ValueError):
    """A file is not a bill of materials that is read here; the text says why."""


def read(content: bytes, distribution: str) -> tuple[list[NestedComponent], list[str]]:
    """The components that a bill in the wheel of a distribution names, and what was ignored. Raises UnreadableError."""
    try:
        document = strictjson.loads(content)
    except (ValueError, RecursionError):
        raise UnreadableError("it is not JSON that all readers read alike") from None
    if isinstance(document, dict) and document.get("bomFormat") == "CycloneDX":
        named = _cyclonedx(document)
    elif isinstance(document, dict) and str(document.get("spdxVersion", "")).startswith("SPDX-2"):
        named = _spdx(document)
    else:
        raise UnreadableError("it is neither CycloneDX nor SPDX 2")
    components: dict[tuple[str, str | None, str | None], NestedComponent] = {}
    for component in named:
        if canonicalize_name(component.name) == distribution and not (component.purl or "").startswith("pkg:cargo/"):
            continue  # the distribution itself
        if len(components) == MOST:
            return list(components.values()), [f"all but the first {MOST} components"]
        components.setdefault((component.name, component.version, component.purl), component)
    return list(components.values()), []


def _cyclonedx(document: dict[str, Any]) -> Iterator[NestedComponent]:
    metadata = document.get("metadata")
    main = metadata.get("component") if isinstance(metadata, dict) else None
    waiting = deque([(0, main), *((0, entry) for entry in _list(document.get("components")))])
    while waiting:
        depth, entry = waiting.popleft()
        if not isinstance(entry, dict):
            continue
        if depth < DEEPEST:
            waiting += ((depth + 1, inner) for inner in _list(entry.get("components")))
        if name := _line(entry.get("name")):
            group = _line(entry.get("group"))
            hashes = ((each.get("alg"), each.get("content")) for each in _dicts(entry.get("hashes")))
            yield NestedComponent(
                f"{group}/{name}" if group else name, _line(entry.get("version")), _purl(entry.get("purl")),
                _hashes(hashes), tuple(_licences(entry.get("licenses"))),
            )  # fmt: skip


def _licences(value: object) -> Iterator[str]:
    for choice in _dicts(value)[:8]:
        licence = choice.get("license")
        fields = licence if isinstance(licence, dict) else {}
        if name := _line(choice.get("expression")) or _line(fields.get("id")) or _line(fields.get("name")):
            yield name


def _spdx(document: dict[str, Any]) -> Iterator[NestedComponent]:
    for package in _dicts(document.get("packages")):
        if name := _line(package.get("name")):
            names = {"SHA1": "SHA-1", "SHA256": "SHA-256", "SHA384": "SHA-384", "SHA512": "SHA-512"}
            hashes = (
                (names.get(str(each.get("algorithm"))), each.get("checksumValue"))
                for each in _dicts(package.get("checksums"))
            )
            urls = (
                _purl(each.get("referenceLocator"))
                for each in _dicts(package.get("externalRefs"))
                if each.get("referenceType") == "purl"
            )
            declared = _line(package.get("licenseDeclared")) or ""
            yield NestedComponent(
                name, _line(package.get("versionInfo")), next((url for url in urls if url), None), _hashes(hashes),
                () if declared in UNSAID else (declared,),
            )  # fmt: skip


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: object) -> list[dict[str, Any]]:
    return [entry for entry in _list(value) if isinstance(entry, dict)]


def _line(value: object) -> str | None:
    """A short printable line; None when it is no text, or empty."""
    if not isinstance(value, str):
        return None
    return text.line(value.strip()[: LONGEST * 2], LONGEST) or None


def _purl(value: object) -> str | None:
    if not isinstance(value, str) or len(value) > LONGEST_URL or not value.isascii() or not value.isprintable():
        return None
    try:
        return PackageURL.from_string(value).to_string()
    except ValueError:
        return None


def _hashes(pairs: Iterator[tuple[object, object]]) -> tuple[tuple[str, str], ...]:
    hashes = {}
    for name, value in pairs:
        length = LENGTHS.get(name) if isinstance(name, str) else None
        if length and isinstance(value, str) and re.fullmatch(f"[0-9a-fA-F]{{{length}}}", value):
            hashes[str(name)] = value.lower()
    return tuple(sorted(hashes.items()))
