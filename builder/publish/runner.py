"""The runner's signature: a certificate signed where it was measured, before it travels.

A certificate is committed and copied as plain JSON; the numbers within their bounds are then the word of whoever handed
it on. With a key that only the measuring machine has, they are that machine's word. It is another key than the one that
publishes, and it is asked for with `publish --runner-key`.
"""

from __future__ import annotations

from pathlib import Path

from builder.base import reading
from builder.base.project import write
from builder.certify.certificate import Statement
from builder.publish import signing


def path(certificate: Path) -> Path:
    """Where the signature of a certificate lies."""
    return certificate.with_suffix(".dsse")


def sign(certificate: Path, key: str, scratch: Path) -> Path:
    """Sign a certificate that was just written; the path of the signature. Raises BadInputError."""
    write(path(certificate), signing.sign(certificate.read_bytes(), key, scratch).raw, scratch)
    return path(certificate)


def doubt(certificate: Path, statement: Statement, manifest: bytes, key: Path, scratch: Path) -> str | None:
    """What speaks against a certificate's signature of its runner; None when it holds. `manifest`: of the image."""
    signature = path(certificate)
    try:
        envelope = signing.parse(reading.content(signature, signature.name))
    except FileNotFoundError:
        return "it is not signed by the machine that measured it: vetted certify --force --key"
    if envelope is None or envelope.payload != statement.to_json().encode():
        return "the machine that measured signed another statement"
    why = signing.holds(envelope, manifest, key, scratch)
    return f"its runner's signature: {why}" if why else None
