"""The runner's signature: a certificate signed where it was measured, before it travels.

A certificate is committed and copied as plain JSON, so anyone on the way could change its numbers. A key that only the
measuring machine has proves them. It is another key than the one that publishes; `publish --runner-key` requires it.
"""

from __future__ import annotations

from pathlib import Path

from builder.base import reading
from builder.base.project import write
from builder.certify.certificate import Statement
from builder.publish import signing


def path(certificate: Path) -> Path:
    """The path of a certificate's signature."""
    return certificate.with_suffix(".dsse")


def sign(certificate: Path, key: str, scratch: Path) -> Path:
    """Sign a certificate that was just written; returns the path of the signature. Raises BadInputError."""
    write(path(certificate), signing.sign(certificate.read_bytes(), key, scratch).raw, scratch)
    return path(certificate)


def doubt(certificate: Path, statement: Statement, manifest: bytes, key: Path, scratch: Path) -> str | None:
    """Check the runner's signature of a certificate. None: it holds; else the reason. `manifest`: of the image."""
    signature = path(certificate)
    try:
        envelope = signing.parse(reading.content(signature, signature.name))
    except FileNotFoundError:
        return "it is not signed by the machine that measured it: vetted certify --force --key"
    if envelope is None or envelope.payload != statement.to_json().encode():
        return "the machine that measured signed another statement"
    reason = signing.doubt(envelope, manifest, key, scratch)
    return f"its runner's signature: {reason}" if reason else None
