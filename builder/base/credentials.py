"""Users and passwords of package indexes, as uv knows them: in its variables, in a URL, in ~/.netrc.

They go to the index's own host, and are written nowhere.
"""

from __future__ import annotations

import netrc
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

Credentials = tuple[str, str]
VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")
PORTS = {"https": 443, "http": 80}
NAMED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)=(?P<url>.+)")


def of(url: str) -> Credentials | None:
    """The user and the password for a file: those of the index on its host and port, where another port may be somebody
    else's. Of several, those of the longest common path. A redirect to another host does not take them along."""
    target = urlsplit(url)
    here = [
        (_common(index.path, target.path), known) for index, known in _indexes() if _origin(index) == _origin(target)
    ]
    if here:
        return max(here, key=lambda pair: pair[0])[1]
    return _netrc(target.hostname or "") if target.scheme == "https" else None


def _origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    try:
        port = url.port
    except ValueError:  # no number: no server has it
        port = 0
    return url.scheme, url.hostname, PORTS.get(url.scheme) if port is None else port


def _indexes() -> Iterator[tuple[SplitResult, Credentials]]:
    """Every index of this machine that there are credentials for."""
    for variable in VARIABLES:
        for entry in os.environ.get(variable, "").split():
            match = NAMED.fullmatch(entry)
            url = urlsplit(match["url"] if match else entry)
            known = (unquote(url.username or ""), unquote(url.password or ""))
            if match:
                name = re.sub(r"[^A-Z0-9]", "_", match["name"].upper())
                user, password = (os.environ.get(f"UV_INDEX_{name}_{what}") for what in ("USERNAME", "PASSWORD"))
                known = (user or known[0], password or known[1])
            if known == ("", ""):
                known = (_netrc(url.hostname or "") if url.scheme == "https" else None) or known
            if known != ("", ""):
                yield url, known


def _common(first: str, other: str) -> int:
    return len(os.path.commonpath([first or "/", other or "/"]))


def _netrc(host: str) -> Credentials | None:
    with suppress(OSError, netrc.NetrcParseError, RuntimeError):
        entry = netrc.netrc(os.environ.get("NETRC") or Path.home() / ".netrc").authenticators(host)
        if entry:
            return entry[0], entry[2]
    return None
