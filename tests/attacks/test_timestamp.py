"""Who may push writes beside the signature what looks like its timestamp: `publish` does not take it for one."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest

from builder.publish import timestamp

OURS, THEIRS = b"signature of the key", b"signature of a stranger"


def token(signed: bytes) -> str:
    """Something that holds the digest of a signature, as a timestamp does."""
    return base64.b64encode(b"token " + hashlib.sha256(signed).digest()).decode()


def layer(signed: bytes, stamp: str) -> dict[str, Any]:
    return {
        "annotations": {
            timestamp.SIGNATURE: base64.b64encode(signed).decode(),
            timestamp.TIMESTAMP: json.dumps({"SignedRFC3161Timestamp": stamp}),
        }
    }


def manifest(*layers: object) -> bytes:
    return json.dumps({"layers": layers}).encode()


def test_a_timestamp_of_another_signature_stands_beside_ours() -> None:
    """cosign verify prints it, because the signature beside it is by the key; but it is about other bytes."""
    assert timestamp.of(manifest(layer(OURS, token(OURS))), token(OURS))
    assert not timestamp.of(manifest(layer(OURS, token(THEIRS))), token(THEIRS))


def test_a_stranger_signs_the_image_with_a_timestamp_of_their_own() -> None:
    """It is a timestamp of their own signature, which cosign verify does not accept and so does not print."""
    assert not timestamp.of(manifest(layer(THEIRS, token(THEIRS))), "[]")


@pytest.mark.parametrize(
    "odd",
    [
        None, 1, {}, {"annotations": None},
        {"annotations": {timestamp.TIMESTAMP: 1}}, layer(OURS, ""), layer(OURS, "~"),
        {"annotations": {timestamp.TIMESTAMP: "{"}}, {"annotations": {timestamp.TIMESTAMP: "[]"}},
        {"annotations": {timestamp.TIMESTAMP: '{"SignedRFC3161Timestamp": 1}', timestamp.SIGNATURE: "AA=="}},
        {"annotations": {timestamp.TIMESTAMP: '{"SignedRFC3161Timestamp": "AA=="}'}},
    ],
)  # fmt: skip
def test_an_odd_layer_hides_the_timestamp_or_breaks_publish(odd: object) -> None:
    """Alone it is not a timestamp; beside one it does not matter."""
    assert not timestamp.of(manifest(odd), token(OURS))
    assert timestamp.of(manifest(odd, layer(OURS, token(OURS))), token(OURS))


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}", b'{"layers": {"a": 1}}', b'{"layers": [], "layers": []}'])
def test_something_else_stands_where_the_signatures_belong(content: bytes | None) -> None:
    """It has no timestamp, and causes no traceback."""
    assert not timestamp.of(content, token(OURS))
