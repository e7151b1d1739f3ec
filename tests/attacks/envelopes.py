"""Envelopes as attackers write them, and as other JSON readers read them."""

from __future__ import annotations

import base64
import binascii
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from builder.publish import signing

GENUINE = b'{"_type": "https://in-toto.io/Statement/v1", "predicateType": "x", "predicate": {"result": "FAILED"}}'
FORGED = GENUINE.replace(b"FAILED", b"PASSED")
Pairs = list[tuple[str, Any]]


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write(pairs: Sequence[tuple[str, Any]]) -> str:
    """JSON with the keys as they are written, escapes and repetitions included; a list of pairs is an object."""
    return "{" + ", ".join(f'"{key}": {_value(value)}' for key, value in pairs) + "}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(write(pairs) for pairs in value) + "]"
    return json.dumps(value)


def genuine(payload: bytes, signature: str) -> Pairs:
    return [
        ("payloadType", signing.PAYLOAD),
        ("payload", encoded(payload)),
        ("signatures", [[("keyid", ""), ("sig", signature)]]),
    ]


def spellings(key: str) -> list[str]:
    """What some reader takes for this key."""
    if not key:
        return [key]
    escaped = f"{key[:-1]}\\u{ord(key[-1]):04x}"
    return [key, key.upper(), key.title(), key[:-1] + key[-1].upper(), escaped, key.replace("s", "ſ", 1)]


def forgeries(payload: bytes, forged: bytes, signature: str) -> dict[str, bytes]:
    """Envelopes in which one reader finds the genuine statement and another the forged one; and near misses."""
    kind, good, bad = ("payloadType", signing.PAYLOAD), encoded(payload), encoded(forged)
    signatures = ("signatures", [[("keyid", ""), ("sig", signature)]])
    envelopes: dict[str, bytes] = {}
    for spelling in spellings("payload"):
        envelopes[f"forged, then {spelling}"] = write([kind, ("payload", bad), (spelling, good), signatures]).encode()
        envelopes[f"{spelling}, then forged"] = write([kind, (spelling, good), ("payload", bad), signatures]).encode()
    envelopes["forged, alone"] = write([kind, ("payload", bad), signatures]).encode()
    envelopes["another key beside it"] = write([kind, ("payload", bad), signatures, ("statement", good)]).encode()
    envelopes["only Payload"] = write([kind, ("Payload", good), signatures]).encode()
    envelopes["two types"] = write([kind, ("PayloadType", "text/plain"), ("payload", good), signatures]).encode()
    envelopes["two lists of signatures"] = write([kind, ("payload", bad), signatures, ("Signatures", [])]).encode()
    twice = [[("sig", encoded(b"other")), ("Sig", signature)]]
    envelopes["sig and Sig"] = write([kind, ("payload", good), ("signatures", twice)]).encode()
    envelopes["base64 for URLs"] = write([kind, ("payload", bad + "-_"), signatures]).encode()
    envelopes["base64 with a space"] = write([kind, ("payload", f"{bad[:8]} {bad[8:]}"), signatures]).encode()
    envelopes["base64 with a line break"] = write([kind, ("payload", f"{good[:8]}\n{good[8:]}"), signatures]).encode()
    envelopes["base64 after its end"] = write([kind, ("payload", encoded(b"a") + good), signatures]).encode()
    envelopes["base64 without its end"] = write([kind, ("payload", encoded(b"a").rstrip("=")), signatures]).encode()
    envelopes["base64 with stray bits"] = write([kind, ("payload", "YR=="), signatures]).encode()
    envelopes["a byte order mark"] = b"\xef\xbb\xbf" + write(genuine(payload, signature)).encode()
    envelopes["UTF-16"] = write(genuine(payload, signature)).encode("utf-16")
    envelopes["two documents"] = (write(genuine(forged, signature)) + write(genuine(payload, signature))).encode()
    envelopes["in a list"] = f"[{write(genuine(payload, signature))}]".encode()
    envelopes["not a number"] = write([kind, ("payload", good), signatures, ("x", float("nan"))]).encode()
    envelopes["no signature"] = write([kind, ("payload", good), ("signatures", [])]).encode()
    envelopes["another type"] = write([("payloadType", "text/plain"), ("payload", good), signatures]).encode()
    envelopes["half a surrogate pair"] = write([kind, ("payload", good), signatures, ("\\ud800", "")]).encode()
    envelopes["not UTF-8"] = write([kind, ("payload", good), signatures, ("é", "")]).encode("latin-1")
    return envelopes


def harmless(payload: bytes, signature: str, rng: random.Random) -> bytes:
    """The genuine envelope, written in another way that every reader reads alike."""
    pairs = genuine(payload, signature)
    if rng.random() < 0.2:
        pairs[2] = ("signatures", [[("sig", signature)]])
    if rng.random() < 0.2:
        pairs[2] = ("signatures", [[("sig", encoded(rng.randbytes(70)))], [("keyid", "k"), ("sig", signature)]])
    if rng.random() < 0.3:
        pairs[1] = ("payl\\u006fad", pairs[1][1])
    rng.shuffle(pairs)
    text = write(pairs)
    if rng.random() < 0.3:
        text = text.replace("/", "\\/")
    return (rng.choice(["", " ", "\n\t"]) + text.replace(", ", rng.choice([", ", ",", " ,\r\n"])) + "\n").encode()


def mutated(payload: bytes, forged: bytes, signature: str, rng: random.Random) -> bytes:
    """An envelope with one to three of the things that attackers try."""
    pairs = genuine(rng.choice([payload, forged]), signature)
    for _ in range(rng.randint(1, 3)):
        rng.choice(CHANGES)(pairs, payload, forged, rng)
    raw = write(pairs).encode()
    for _ in range(rng.choice([0, 0, 1])):
        raw = rng.choice(DAMAGE)(raw, rng)
    return raw


def _another(pairs: Pairs, payload: bytes, forged: bytes, rng: random.Random) -> None:
    key = rng.choice(spellings(rng.choice(["payload", "payloadType", "signatures"])))
    value: Any = encoded(rng.choice([payload, forged]))
    if "ype" in key:
        value = signing.PAYLOAD
    elif "ignature" in key:
        value = [[("sig", encoded(forged))]]
    pairs.insert(rng.randint(0, len(pairs)), (key, value))


def _unknown(pairs: Pairs, payload: bytes, _: bytes, rng: random.Random) -> None:
    pairs.insert(rng.randint(0, len(pairs)), (rng.choice(["statement", "", "bundle", "pay load"]), encoded(payload)))


def _respelt(pairs: Pairs, _: bytes, __: bytes, rng: random.Random) -> None:
    number = rng.randrange(len(pairs))
    key, value = pairs[number]
    pairs[number] = (rng.choice(spellings(key)) if "\\" not in key else key, value)


def _reencoded(pairs: Pairs, payload: bytes, forged: bytes, rng: random.Random) -> None:
    text = encoded(rng.choice([payload, forged]) + rng.randbytes(rng.choice([0, 0, 1, 2])))
    place = rng.randrange(len(text))
    text = rng.choice(
        [
            text.replace("+", "-").replace("/", "_"),
            text.rstrip("="),
            text + "=",
            f"{text[:place]}{rng.choice(' ~-_=') + rng.choice(['', chr(10)])}{text[place:]}",
            text[:place] + rng.choice("ABCabc019+/") + text[place + 1 :],
            encoded(text.encode()),
        ]
    )
    pairs[:] = [(key, text if key == "payload" else value) for key, value in pairs]


def _signatures(pairs: Pairs, _: bytes, forged: bytes, rng: random.Random) -> None:
    for number, (key, value) in enumerate(pairs):
        if key == "signatures":
            signature = [*value[0]] if value else []
            signature.insert(
                rng.randint(0, len(signature)), (rng.choice(["Sig", "sig", "SIG", "cert", "ſig"]), encoded(forged))
            )
            pairs[number] = (key, rng.choice([[], [*value, *value], [signature], [*value, signature], value * 20]))


def _kind(pairs: Pairs, _: bytes, __: bytes, rng: random.Random) -> None:
    other = rng.choice(["", "text/plain", signing.PAYLOAD.upper(), signing.PAYLOAD + " ", 7, None])
    pairs[:] = [(key, other if key == "payloadType" else value) for key, value in pairs]


CHANGES: tuple[Callable[[Pairs, bytes, bytes, random.Random], None], ...] = (
    _another, _another, _unknown, _respelt, _reencoded, _signatures, _kind,
)  # fmt: skip
DAMAGE: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    lambda raw, rng: raw[: rng.randrange(len(raw))],
    lambda raw, rng: raw[: (place := rng.randrange(len(raw)))] + rng.randbytes(1) + raw[place + 1 :],
    lambda raw, _: raw + raw,
    lambda raw, _: b"\xef\xbb\xbf" + raw,
    lambda raw, _: raw.decode(errors="replace").encode("utf-16"),
    lambda raw, _: raw.replace(b"}", b', "x": NaN}', 1),
    lambda raw, _: raw.replace(b"}", b', "x": 1e999}', 1),
)


# --- other readers -------------------------------------------------------------------------------------------------


def readings(raw: bytes) -> dict[str, bytes | None]:
    """The payload that an envelope has for readers who take the first key, the last one, or any spelling of it."""
    return {
        "first": _payload(raw, lambda key: key, first=True),
        "last": _payload(raw, lambda key: key, first=False),
        "Go, first": _payload(raw, str.casefold, first=True),
        "Go": _payload(raw, str.casefold, first=False),
    }


def _payload(raw: bytes, fold: Callable[[str], str], *, first: bool) -> bytes | None:
    try:
        text = raw.decode("utf-8-sig", errors="replace")
        pairs, _ = json.JSONDecoder(object_pairs_hook=list).raw_decode(text.strip())
        texts = [value for key, value in pairs if fold(key) == "payload"]
        return _lenient(texts[0 if first else -1])
    except (ValueError, IndexError, TypeError, RecursionError, AttributeError):
        return None


def _lenient(text: str) -> bytes | None:
    """Base64 as readers that forgive read it: either alphabet, without white space, padded or not."""
    plain = re.sub(r"\s", "", text).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4))
    except binascii.Error:
        return None
