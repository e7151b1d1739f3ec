"""RFC 3161 timestamps of the image's signature: which server cosign asks, and whether its answer counts.

`cosign sign` stores any timestamp that the server sends, even of other bytes; only `cosign verify` refuses it. So it
is compared with the signature here. Who signed the timestamp is for `cosign verify` to judge, with the server's
certificate chain.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any
from urllib.parse import urlsplit

from builder.base import errors, strictjson, text
from builder.base.text import word

SIGNATURE, TIMESTAMP = "dev.cosignproject.cosign/signature", "dev.sigstore.cosign/rfc3161timestamp"
FETCHED = "Timestamp fetched"  # printed by cosign when it has the timestamp: a later failure is the registry's
FAILED = re.compile(r"signing digest: (.*)")


def server(url: str) -> str:
    """The address of a timestamp server. Raises ValueError."""
    parts = urlsplit(url)
    if not re.fullmatch(r"https?://[!-~]+", url) or not parts.hostname or parts.port == 0:
        raise ValueError(f"{text.line(url)!r} is not a URL, such as https://timestamp.example.org/tsr")
    if parts.username is not None:
        raise ValueError("it holds a user name: every user of this machine could read the password")
    return url


def of(manifest: bytes | None, verified: str) -> bool:
    """Does a signature in the manifest of an image's signatures have a timestamp of its own?

    `verified`: the output of `cosign verify`, which contains the timestamps of the key's signatures and no other.
    """
    try:
        layers = strictjson.load_object(manifest or b"{}").get("layers")
    except ValueError:
        return False
    return isinstance(layers, list) and any(_stamped(layer, verified) for layer in layers)


def _stamped(layer: Any, verified: str) -> bool:
    try:
        token = strictjson.load_object(layer["annotations"][TIMESTAMP].encode())["SignedRFC3161Timestamp"]
        signed = base64.b64decode(layer["annotations"][SIGNATURE], validate=True)
        return token in verified and hashlib.sha256(signed).digest() in base64.b64decode(token, validate=True)
    except (ValueError, TypeError, KeyError, AttributeError):  # anyone who may push can write anything there
        return False


def explain(url: str, output: str) -> errors.NetworkError | None:
    """The timestamp server's error in the output of cosign; None when another part of the signing failed."""
    match = FAILED.search(output)
    if match is None or FETCHED in output:
        return None
    if "error making request to timestamp authority" in match[1]:
        return errors.NetworkError(
            f"the timestamp server {url} does not answer; no tag was moved\n{text.line(match[1])}",
            cause="the server is down, or a proxy or firewall stands between",
            next_step=f"curl -sS {word(url)}; when that answers, run this again",
        )
    return no_timestamp(url, text.line(match[1]))


def no_timestamp(url: str, detail: str) -> errors.NetworkError:
    """The server's answer is no timestamp of the signature."""
    return errors.NetworkError(
        f"the timestamp server {url} does not answer with a timestamp of the signature; no tag was moved\n{detail}",
        cause="the address is not that of the server's RFC 3161 interface, or the server fails",
        next_step="look up the address in the server's documentation; it often ends with /tsr or /api/v1/timestamp",
    )
