"""Names of images in registries: HOST/PATH, HOST/PATH:TAG and HOST/PATH@sha256:…"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from builder.image.oci import DIGEST

HOST = r"(?:[A-Za-z0-9]+(?:[.-][A-Za-z0-9]+)*|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?"
PATH = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
REPOSITORY = re.compile(rf"(?P<host>{HOST})/(?P<path>{PATH}(?:/{PATH})*)")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
LONGEST = 255  # characters of a repository's name


@dataclass(frozen=True)
class Repository:
    """A place in a registry that holds images. `plain`: plain HTTP, without TLS."""

    host: str
    path: str
    plain: bool

    def __str__(self) -> str:
        return f"{self.host}/{self.path}"


@dataclass(frozen=True)
class Reference:
    """An image in a registry, by its tag or its digest; where both are given, the digest decides."""

    repository: Repository
    tag: str | None
    digest: str | None

    def __str__(self) -> str:
        return f"{self.repository}" + (f"@{self.digest}" if self.digest else f":{self.tag}")


def parse_repository(text: str, *, insecure: bool) -> Repository:
    """HOST/PATH. Raises ValueError. Without `insecure`, plain HTTP is for a registry on this machine only."""
    match = REPOSITORY.fullmatch(text)
    if match is None or len(text) > LONGEST or not _is_host(match["host"]):
        raise ValueError(f"{text!r} is not HOST/PATH, such as registry.example.org/team/vetted")
    return Repository(match["host"], match["path"], insecure or _is_loopback(match["host"]))


def parse_reference(text: str, *, insecure: bool) -> Reference:
    """HOST/PATH:TAG or HOST/PATH@sha256:…, or both. Raises ValueError."""
    name, _, digest = text.partition("@")
    if digest and not DIGEST.fullmatch(digest):
        raise ValueError(f"{digest!r} is not a digest, sha256: and 64 hexadecimal digits")
    head, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # a colon before the last slash is that of a port
        head, tag = name, ""
    elif not TAG.fullmatch(tag):
        raise ValueError(f"{tag!r} is not a tag")
    if not tag and not digest:
        raise ValueError(f"{text!r} names no image: HOST/PATH:TAG or HOST/PATH@sha256:…")
    return Reference(parse_repository(head, insecure=insecure), tag or None, digest or None)


def _is_host(host: str) -> bool:
    # As Docker reads it: the first part of a name is a host only if it looks like one.
    port = re.search(r":([0-9]+)$", host.rpartition("]")[2])
    return ("." in host or ":" in host or host == "localhost") and (port is None or 0 < int(port[1]) < 65536)


def _is_loopback(host: str) -> bool:
    name = re.sub(r":[0-9]+$", "", host) if not host.endswith("]") else host
    try:
        return name == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
