"""Envelopes that say one thing to cosign and another to who reads them."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builder.base import strictjson
from builder.image import oci
from builder.image.oci import Image
from builder.publish import attached, signing, verify
from builder.publish.signing import Envelope
from tests.attacks.envelopes import FORGED, GENUINE, encoded, forgeries, genuine, harmless, mutated, readings, write
from tests.registry import conftest as at
from tests.registry.conftest import Keys, image_of
from tests.registry.conftest import isolated as isolated
from tests.registry.conftest import keys as keys
from tests.registry.conftest import other_keys as other_keys

SIGNATURE = encoded(b"signature")


# --- as they are read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in forgeries(b"", b"", "") if name != "forged, alone"])
def test_an_envelope_that_two_readers_read_differently(name: str) -> None:
    """The forged statement is under `payload`, the genuine one under a key that Go treats as the same."""
    assert signing.parse(forgeries(GENUINE, FORGED, SIGNATURE)[name]) is None


@pytest.mark.parametrize(
    "document",
    [
        b'{"a": 1, "a": 1}', b'{"a": 1, "A": 2}', '{"s": 1, "ſ": 2}'.encode(), '{"k": 1, "\u212a": 2}'.encode(),
        b'{"a": 1, "\\u0061": 2}', b'[{"b": {"a": 1, "A": 1}}]', b"NaN", b"-Infinity", b"[1e999]", b"9" * 400,
        b"[" * 200 + b"]" * 200, b"[" * 100_000, b'"\\ud800"', b'{"\\udc00": 1}', b'"\xff"', b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf1", b"1 2", b'"a\nb"', b"", "1".encode("utf-16"),
    ],
)  # fmt: skip
def test_a_statement_that_two_readers_read_differently(document: bytes) -> None:
    """A signed statement is also refused if another reader could see other content."""
    with pytest.raises(ValueError):
        strictjson.loads(document)
    envelope = signing.parse(write(genuine(b'{"predicateType": %b}' % document, SIGNATURE)).encode())
    assert envelope is not None
    assert envelope.statement == {}


@pytest.mark.parametrize("document", [b"[]", b'["predicateType"]', b'"x"', b"1", b"null", b"true"])
def test_a_statement_that_is_no_object(document: bytes) -> None:
    """It is signed, and valid JSON: its type is asked for before anything else, and it has none."""
    envelope = signing.parse(write(genuine(document, SIGNATURE)).encode())
    assert envelope is not None
    assert (envelope.statement, envelope.predicate_type) == ({}, "")
    assert signing.parse(document) is None


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz", max_size=3), inner, max_size=3),
        max_leaves=8,
    )
)
def test_what_every_reader_reads_alike_is_read(value: Any) -> None:
    """Only ambiguous documents are refused."""
    assert strictjson.loads(json.dumps(value).encode()) == value
    assert strictjson.loads(json.dumps(value, ensure_ascii=False, indent=1).encode()) == value


def test_ten_thousand_mutated_envelopes() -> None:
    """Every accepted envelope has one payload for all readers; cosign gets exactly that payload."""
    rng, accepted, refused = random.Random(12), 0, 0
    for _ in range(10_000):
        raw = mutated(GENUINE, FORGED, SIGNATURE, rng)
        envelope = signing.parse(raw)
        if envelope is None:
            refused += 1
            continue
        accepted += 1
        assert set(readings(raw).values()) == {envelope.payload}, raw
        assert set(readings(envelope.raw).values()) == {envelope.payload}, raw
    assert accepted > 200 and refused > 5000


def test_a_thousand_genuine_envelopes_written_differently() -> None:
    """None is refused, and all are the same envelope afterwards."""
    rng = random.Random(12)
    for _ in range(1000):
        raw = harmless(GENUINE, SIGNATURE, rng)
        envelope = signing.parse(raw)
        assert envelope is not None, raw
        assert envelope.payload == GENUINE
        assert b"signature" in dict.fromkeys(sig for _, sig in envelope.signatures)
        assert signing.parse(envelope.raw) == envelope


# --- as cosign verifies them ---------------------------------------------------------------------------------------


def _signed(image: Image, keys: Keys, scratch: Path, result: str = "FAILED") -> Envelope:
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "it", "digest": {"sha256": image.manifest[7:]}}],
        "predicateType": attached.PROVENANCE,
        "predicate": {"result": result},
    }
    return signing.sign(json.dumps(statement).encode(), str(keys.private), scratch)


def _cosign(raw: bytes, image: Image, key: Path, scratch: Path) -> bool:
    """Does cosign verify these very bytes?"""
    path = scratch / "raw"
    path.write_bytes(raw)
    argv = ["cosign", "verify-blob-attestation", "--insecure-ignore-tlog", f"--key={key}", f"--signature={path}"]
    where = oci.blob(image.layout, image.manifest)
    return subprocess.run([*argv, f"--type={attached.PROVENANCE}", where], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return image_of(tmp_path_factory.mktemp("image") / "layout", [{"etc/content": "content"}])


@pytest.fixture(scope="module")
def envelope(image: Image, keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Envelope:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSIGN_PASSWORD", at.PASSWORD)
        return _signed(image, keys, tmp_path_factory.mktemp("signing"))


@pytest.mark.engine
@settings(
    max_examples=150, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(seed=st.integers(0, 2**32), how=st.sampled_from([mutated, None, "forged"]))
def test_what_is_accepted_is_what_cosign_verified(
    seed: int, how: Any, image: Image, envelope: Envelope, keys: Keys, tmp_path: Path
) -> None:
    """Go and Python agree on every envelope that is accepted, and no other payload than the signed one is."""
    rng, forged = random.Random(seed), envelope.payload.replace(b"FAILED", b"PASSED")
    signature = encoded(envelope.signatures[0][1])
    if how is None:
        raw = harmless(envelope.payload, signature, rng)
    elif how == "forged":
        raw = rng.choice(list(forgeries(envelope.payload, forged, signature).values()))
    else:
        raw = mutated(envelope.payload, forged, signature, rng)
    read = signing.parse(raw)
    manifest = oci.checked(image.layout, image.manifest)
    accepted = read is not None and signing.doubt(read, manifest, keys.public, tmp_path) is None
    if accepted:
        assert read is not None
        assert read.payload == envelope.payload
        assert _cosign(raw, image, keys.public, tmp_path), raw
    assert accepted or how is not None


@pytest.mark.engine
def test_a_good_signature_of_another_key_among_several(
    image: Image, keys: Keys, other_keys: Keys, tmp_path: Path
) -> None:
    """One of several signatures must be by the right key; its position does not matter."""
    ours = _signed(image, keys, tmp_path)
    theirs = signing.sign(ours.payload, str(other_keys.private), tmp_path)
    forged = signing.sign(ours.payload.replace(b"FAILED", b"PASSED"), str(other_keys.private), tmp_path)
    manifest = oci.checked(image.layout, image.manifest)
    mixed = Envelope(ours.payload, (*theirs.signatures, *forged.signatures, *ours.signatures))
    assert signing.doubt(mixed, manifest, keys.public, tmp_path) is None
    for wrong in (
        Envelope(ours.payload, (*theirs.signatures, *forged.signatures)),
        Envelope(forged.payload, (*ours.signatures, *forged.signatures)),
    ):
        assert signing.doubt(wrong, manifest, keys.public, tmp_path) is not None


def test_a_statement_is_judged_as_it_was_parsed(image: Image) -> None:
    """The judged object is the one that was read strictly; an ambiguous payload is about no image."""
    good = b'{"subject": [{"digest": {"sha256": "%b"}}]}' % image.manifest[7:].encode()
    two = good[:-1] + b', "Subject": []}'
    assert verify.is_about(Envelope(good, ()).statement, image.manifest)
    assert not verify.is_about(Envelope(two, ()).statement, image.manifest)
