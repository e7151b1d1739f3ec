"""Sign and check statements with cosign: with a key, without a network, without a transparency log.

A log would publish which images an organisation makes, and does not answer without a network: so trust rests on the
key alone, and anyone with it can sign anything. A signed statement is a DSSE envelope, as in in-toto; the signature
covers the decoded payload, byte for byte.
"""

from __future__ import annotations

import base64
import json
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from builder.base import errors, process, strictjson, text
from builder.publish import refusal

PAYLOAD = "application/vnd.in-toto+json"
MEDIA_TYPE = "application/vnd.dsse.envelope.v1+json"
SIGNATURES = 8  # at most, in one envelope: each costs a run of cosign
OTHER_DIGEST = "it is about another digest"
KEY_URI = re.compile(r"[a-z0-9]+://[A-Za-z0-9._~:/?#@%+=,-]+")  # cosign's: awskms://, hashivault://, env://
LOCKED = re.compile(r"decryption failed|inappropriate ioctl|password", re.IGNORECASE)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Signature(_Model):
    keyid: Annotated[str, Field(max_length=256)] = ""
    sig: Annotated[str, Field(min_length=1)]


class _Envelope(_Model):
    payloadType: Literal["application/vnd.in-toto+json"]  # noqa: N815  (DSSE's name)
    payload: str
    signatures: Annotated[list[_Signature], Field(min_length=1, max_length=SIGNATURES)]


@dataclass(frozen=True)
class Envelope:
    """A statement with its signatures, each a key's id and the signature. It proves nothing until `doubt` checks it."""

    payload: bytes
    signatures: tuple[tuple[str, bytes], ...]

    @cached_property
    def raw(self) -> bytes:
        """The envelope, always written in the same way: foreign JSON is never passed on."""
        envelope = {
            "payloadType": PAYLOAD,
            "payload": base64.b64encode(self.payload).decode(),
            "signatures": [{"keyid": keyid, "sig": base64.b64encode(sig).decode()} for keyid, sig in self.signatures],
        }
        return json.dumps(envelope).encode()

    @cached_property
    def statement(self) -> dict[str, Any]:
        """The statement as JSON; empty when it is no object, or when two readers might differ on it."""
        try:
            return strictjson.load_object(self.payload)
        except ValueError:
            return {}

    @property
    def predicate_type(self) -> str:
        predicate_type = self.statement.get("predicateType")
        return predicate_type if isinstance(predicate_type, str) else ""


def parse(raw: bytes) -> Envelope | None:
    """Parse an envelope of an in-toto statement; None when it is none, or when two readers might differ on it."""
    try:
        envelope = _Envelope.model_validate(strictjson.load_object(raw))
        signatures = tuple((signature.keyid, _base64(signature.sig)) for signature in envelope.signatures)
        return Envelope(_base64(envelope.payload), signatures)
    except ValueError:  # pydantic's is one
        return None


def _base64(text: str) -> bytes:
    """Decode base64 in its one canonical spelling. Raises ValueError: another alphabet, white space, stray bits."""
    decoded = base64.b64decode(text, validate=True)
    if base64.b64encode(decoded).decode() != text:
        raise ValueError("is not base64 as it is written")
    return decoded


def sign(statement: bytes, key: str, scratch: Path) -> Envelope:
    """Sign a statement. `key` is a file of cosign's or one of its URIs; its password is in COSIGN_PASSWORD.

    Raises BadInputError, StorageError.
    """
    _refuse_no_key(key)
    to_sign, signature = scratch / "to-sign", scratch / "signature"
    to_sign.write_bytes(_pae(statement))
    _cosign(
        key, "sign-blob", "--yes", "--tlog-upload=false", "--key", key, "--output-signature", str(signature),
        str(to_sign),
    )  # fmt: skip
    return Envelope(statement, (("", _base64(signature.read_text().strip())),))


def key_environment(key: str) -> dict[str, str]:
    """The variable that a key like env://NAME names, for cosign's environment."""
    scheme, _, name = key.partition("://")
    return {name: os.environ[name]} if scheme == "env" and name in os.environ else {}


def _pae(statement: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes that are signed."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD), PAYLOAD.encode(), len(statement), statement)


def public(key: str, scratch: Path) -> Path:
    """The public half of a signing key, in a file. Raises BadInputError."""
    _refuse_no_key(key)
    target = scratch / "signer.pub"
    target.write_text(_cosign(key, "public-key", "--key", key).stdout)
    return target


def doubt(envelope: Envelope, manifest: bytes, key: Path, scratch: Path) -> str | None:
    """Check an envelope against the manifest that it must be about. None: the key signed it; else the reason.

    cosign gets one signature at a time, in an envelope that was written here: so the bytes that it verified are those
    of `payload`.
    """
    subject = scratch / "subject"
    subject.write_bytes(manifest)
    reasons = [_doubt(Envelope(envelope.payload, (single,)), subject, key, scratch) for single in envelope.signatures]
    if None in reasons:
        return None
    return OTHER_DIGEST if OTHER_DIGEST in reasons else reasons[0]


def _doubt(envelope: Envelope, subject: Path, key: Path, scratch: Path) -> str | None:
    path = scratch / "envelope"
    path.write_bytes(envelope.raw)
    result = process.run(
        [
            "cosign", "verify-blob-attestation", "--insecure-ignore-tlog", "--key", str(key),
            f"--type={envelope.predicate_type}", "--signature", str(path), str(subject),
        ]
    )  # fmt: skip
    if result.returncode == 0:
        return None
    if "no matching subject digest" in result.output:
        return OTHER_DIGEST
    if "loading public key" in result.output:
        raise errors.BadInputError(
            f"{key.name} cannot be read as a public key", cause="the file was cut short", next_step="--key cosign.pub"
        )
    return "it is signed by another key, or was changed after it was signed"


def _refuse_no_key(key: str) -> None:
    if not KEY_URI.fullmatch(key) and not Path(key).is_file():
        raise errors.BadInputError(
            f"there is no key {key}",
            next_step="cosign generate-key-pair  (it asks for a password, and writes cosign.key)",
        )


def _cosign(key: str, *argv: str) -> process.Result:
    result = process.run(["cosign", *argv], env=key_environment(key))
    if result.returncode == 0:
        return result
    if here := refusal.HERE.search(result.output):
        raise refusal.disk_full(here[1])
    if LOCKED.search(result.output):
        raise errors.BadInputError(
            f"{key}: its password is wrong, or was not given", next_step="export COSIGN_PASSWORD, then run this again"
        )
    printed = [text.line(line) for line in result.stderr.splitlines() if line.startswith("Error")]
    raise errors.BadInputError(
        f"{key} cannot sign: {printed[0].removeprefix('Error: ') if printed else 'cosign says nothing'}",
        cause="the file is no private key of cosign's, or its service does not answer",
        next_step="cosign public-key --key KEY",
    )
