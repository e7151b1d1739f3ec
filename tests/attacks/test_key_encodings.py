"""Attacks on the list of revoked keys: a revoked key in another encoding, in another place of its file, or replaced."""

from __future__ import annotations

import base64
import hashlib
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.base import errors
from builder.base.project import Project
from builder.publish import keys
from tests.conftest import Small
from tests.unit.conftest import Command
from tests.unit.conftest import command as command
from tests.unit.publish.keyfiles import ED25519, ELLIPTIC, LONG, OTHER, RSA, der, pem

FIXED = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200")  # what stands before a point on P-256
PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1


@pytest.fixture
def project(small: Small) -> Project:
    """A project in which all keys of these tests but one are revoked."""
    lines = [hashlib.sha256(der(key)).hexdigest() for key in (ELLIPTIC, RSA, ED25519)]
    (small.root / "keys").mkdir()
    (small.root / "keys" / "revoked.txt").write_text("\n".join(["# stolen", *lines, ""]))
    return small.project


def refused(project: Project, content: str | bytes) -> str:
    path = project.root / "their.pub"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(errors.BadInputError) as error:
        keys.refuse_revoked(project, path)
    return error.value.what


def block(key: bytes) -> str:
    return pem(base64.b64encode(key).decode())


def element(tag: int, *content: bytes) -> bytes:
    body = b"".join(content)
    size = bytes([len(body)]) if len(body) < 128 else b"\x82" + len(body).to_bytes(2)
    return bytes([tag]) + size + body


POINT = der(ELLIPTIC)[len(FIXED) :]
ALGORITHM = der(ELLIPTIC)[2:23]
DESCRIBED = element(
    0x30, b"\2\1\1", element(0x30, bytes.fromhex("06072a8648ce3d0101"), element(2, b"\0" + PRIME.to_bytes(32))),
    element(0x30, element(4, bytes(32)), element(4, bytes(32))), element(4, POINT), element(2, b"\1" * 32), b"\2\1\1",
)  # fmt: skip
SHIFTED = (int.from_bytes(POINT) << 5).to_bytes(65)
NUMBERS = der(RSA)[24:]  # the SEQUENCE of modulus and exponent
RSA_ALGORITHM = der(RSA)[4:19]
ENCODINGS: dict[str, bytes] = {
    "a compressed point": element(0x30, ALGORITHM, element(3, b"\0", bytes([2 + POINT[-1] % 2]), POINT[1:33])),
    "a hybrid point": element(0x30, ALGORITHM, element(3, b"\0", bytes([6 + POINT[-1] % 2]), POINT[1:])),
    "a curve with all its parameters": element(
        0x30, element(0x30, ALGORITHM[2:11], DESCRIBED), element(3, b"\0", POINT)
    ),
    "unused bits": element(0x30, ALGORITHM, element(3, b"\5", SHIFTED)),
    "bytes that follow": der(ELLIPTIC) + b"\0",
    "bytes that follow inside": element(0x30, der(ELLIPTIC)[2:], b"\5\0"),
    "bytes that follow the curve": element(0x30, element(0x30, ALGORITHM[2:], b"\5\0"), element(3, b"\0", POINT)),
    "a long length": b"\x30\x81" + der(ELLIPTIC)[1:],
    "a length of no end": b"\x30\x80" + der(ELLIPTIC)[2:] + b"\0\0",
    "a length with a zero": b"\x30\x82\0" + der(ELLIPTIC)[1:],
    "RSA without parameters": element(
        0x30, element(0x30, RSA_ALGORITHM[2:13]), element(3, b"\0", NUMBERS)
    ),
    "RSA with bytes after its numbers": element(0x30, RSA_ALGORITHM, element(3, b"\0", NUMBERS, b"\0")),
    "RSA with a third number": element(0x30, RSA_ALGORITHM, element(3, b"\0", element(0x30, NUMBERS[4:], b"\2\1\1"))),
    "RSA with a zero before its exponent": element(
        0x30, RSA_ALGORITHM, element(3, b"\0", element(0x30, NUMBERS[4:-5], b"\2\4\0\1\0\1"))
    ),
    "Ed25519 with parameters": element(0x30, element(0x30, b"\6\3\x2b\x65\x70\5\0"), der(ED25519)[9:]),
}  # fmt: skip


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_revoked_key_in_another_encoding(project: Project, name: str) -> None:
    """A compressed point, a described curve, unused bits, bytes that follow, other lengths: the sha256 is
    another, so every encoding but one is refused."""
    assert "cannot be read as a public key: " in refused(project, block(ENCODINGS[name]))


LAYOUTS: dict[str, Callable[[str], str | bytes]] = {
    "as cosign writes it": lambda text: text,
    "lines that end as on Windows": lambda text: text.replace("\n", "\r\n"),
    "one long line": lambda text: "\n".join([text.splitlines()[0], "".join(text.splitlines()[1:-1]), text[-25:]]),
    "spaces": lambda text: text.replace("\nM", "\n  M"),
    "words around it": lambda text: f"the new key\n\n{text}\nno key\n",
    "a byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("key", [ELLIPTIC, RSA, ED25519])
def test_a_revoked_key_in_another_layout(project: Project, key: str, layout: str) -> None:
    """Line breaks, spaces and words around the key change nothing."""
    assert "is revoked: sha256 " in refused(project, LAYOUTS[layout](pem(key)))


def test_a_revoked_key_far_behind_a_good_one(project: Project) -> None:
    """After a good key that cosign cannot read come 64 KiB of words, and a key that it can."""
    content = pem(OTHER).replace("\nM", "\n\x0bM") + "#" * (64 << 10) + "\n" + pem(ELLIPTIC)
    assert "the file is too large" in refused(project, content)


@pytest.mark.parametrize("content", [der(ELLIPTIC), pem(OTHER) + pem(ELLIPTIC), pem(ELLIPTIC).encode("utf-16")])
def test_a_revoked_key_that_is_no_single_block_of_pem(project: Project, content: str | bytes) -> None:
    """It is DER, the second of two keys, or in UTF-16."""
    assert "public key" in refused(project, content)


def test_a_key_that_is_replaced_after_it_was_looked_up(project: Project, tmp_path: Path) -> None:
    """Between the look-up and cosign's run, the file gets a revoked key."""
    path = tmp_path / "their.pub"
    path.write_text(f"a good key\n{pem(OTHER)}")
    trusted = keys.trusted(project, [path])
    path.write_text(pem(ELLIPTIC))
    (written,) = keys.write(trusted, tmp_path)
    assert written.read_text() == pem(OTHER)


def test_a_policy_whose_key_is_followed_by_another(small: Small, command: Command) -> None:
    """Words around a key do not reach the rules of a cluster."""
    (small.root / "cosign.pub").write_text(f"evil: true\n{pem(OTHER)}evil: true\n")
    (small.root / "policy.toml").write_text('signed_by = ["cosign.pub"]\nimages = ["registry.example/a"]\n')
    assert command(small.root, "policy", "policy.toml", "--output", "rules").code == 0
    written = [path.read_text() for path in (small.root / "rules").glob("*.yaml")]
    assert len(written) == 2
    assert all("-----BEGIN PUBLIC KEY-----" in text and "evil" not in text for text in written)


def test_a_list_of_revoked_keys_that_leads_nowhere(small: Small) -> None:
    """keys/revoked.txt is a link to a file that is gone: that is no empty list."""
    (small.root / "keys").mkdir()
    (small.root / "keys" / "revoked.txt").symlink_to("gone.txt")
    assert "the revoked keys cannot be read" in refused(small.project, pem(OTHER))


def test_a_key_that_is_printed_in_another_width(small: Small) -> None:
    """What cosign is given is always the key as cosign writes it."""
    path = small.root / "their.pub"
    for key in (ELLIPTIC, RSA, ED25519, OTHER, LONG):
        path.write_text(pem("\n".join(textwrap.wrap(key.replace("\n", ""), 20))))
        assert keys.read(path).pem == pem(key)
        assert keys.read(path).fingerprint == hashlib.sha256(der(key)).hexdigest()
