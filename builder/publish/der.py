"""The one encoding of a public key: DER as RFC 5280 and the key's own standard have it, and nothing beside it.

Programs also accept other encodings of the same key: a compressed point, a curve with all its parameters, unused bits,
bytes that follow. Whoever compares keys by their bytes takes those for other keys, so they are refused.
"""

from __future__ import annotations

from builder.base.project import sha256

SEQUENCE, INTEGER, BITS, NULL, OBJECT = 0x30, 0x02, 0x03, 0x05, 0x06
RSA = bytes.fromhex("2a864886f70d010101")
ED25519 = bytes.fromhex("2b6570")
ELLIPTIC = bytes.fromhex("2a8648ce3d0201")
CURVES = {  # NIST's, which cosign knows, each with its prime
    bytes.fromhex("2a8648ce3d030107"): 2**256 - 2**224 + 2**192 + 2**96 - 1,
    bytes.fromhex("2b81040022"): 2**384 - 2**128 - 2**96 + 2**32 - 1,
    bytes.fromhex("2b81040023"): 2**521 - 1,
}


def fingerprint(key: bytes) -> str:
    """The sha256 of a public key, in hexadecimal. Raises ValueError for a key in any other encoding."""
    check(key)
    return sha256(key).removeprefix("sha256:")


def check(key: bytes) -> None:
    """Raises ValueError unless these bytes are a SubjectPublicKeyInfo in its one encoding."""
    algorithm, bits = _elements(_only(key, SEQUENCE), SEQUENCE, BITS)
    if bits[:1] != b"\0":
        raise ValueError("its bits do not fill their bytes")
    kind, parameters = _split(algorithm, OBJECT)
    if kind == ELLIPTIC:
        _check_point(_curve(parameters), bits[1:])
    elif kind == ED25519:
        if parameters or len(bits) != 33:
            raise ValueError("it is no Ed25519 key of 32 bytes without parameters")
    elif kind == RSA:
        if _only(parameters, NULL):
            raise ValueError("its parameters are not empty")
        modulus, exponent = (_number(each) for each in _elements(_only(bits[1:], SEQUENCE), INTEGER, INTEGER))
        if modulus < exponent:
            raise ValueError("its exponent is larger than its modulus")
    else:
        raise ValueError("it is no key for ECDSA, Ed25519 or RSA")


def _curve(parameters: bytes) -> int:
    """The prime of a curve that is named."""
    if parameters[:1] != bytes([OBJECT]):
        raise ValueError("its curve is not named, but described")
    prime = CURVES.get(_only(parameters, OBJECT))
    if prime is None:
        raise ValueError("its curve is not P-256, P-384 or P-521")
    return prime


def _check_point(prime: int, point: bytes) -> None:
    size = (prime.bit_length() + 7) // 8
    if point[:1] in (b"\2", b"\3"):
        raise ValueError("its point is compressed")
    if point[:1] != b"\4" or len(point) != 1 + 2 * size:
        raise ValueError("its point is not two coordinates")
    if any(int.from_bytes(part) >= prime for part in (point[1 : 1 + size], point[1 + size :])):
        raise ValueError("its point is outside the curve's field")


def _number(content: bytes) -> int:
    """A positive INTEGER in as few bytes as it needs."""
    number = int.from_bytes(content, signed=True)
    if number <= 0 or len(content) != number.bit_length() // 8 + 1:
        raise ValueError("a number in it is not positive, or has bytes too many")
    return number


def _elements(content: bytes, *tags: int) -> list[bytes]:
    """The contents of exactly these elements, one after the other."""
    contents = []
    for tag in tags:
        element, content = _split(content, tag)
        contents.append(element)
    if content:
        raise ValueError("bytes follow where it ends")
    return contents


def _only(content: bytes, tag: int) -> bytes:
    return _elements(content, tag)[0]


def _split(content: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of the first element, which has this tag, and what follows it."""
    if len(content) < 2 or content[0] != tag:
        raise ValueError("a part of it is missing, or of another kind")
    length, start = content[1], 2
    if length >= 0x80:
        digits = length - 0x80
        length, start = int.from_bytes(content[2 : 2 + digits]), 2 + digits
        if not 1 <= digits <= 4 or length < 0x80 or content[2] == 0:
            raise ValueError("a length in it is not written as DER writes it")
    if len(content) < start + length:
        raise ValueError("it was cut short")
    return content[start : start + length], content[start + length :]
