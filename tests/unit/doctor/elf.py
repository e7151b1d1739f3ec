"""Shared objects, made byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from doctor.read.elf import gnu_hash

SYMBOL = "_ZN3c105ErrorC2ENS_14SourceLocationESs"


def shared_object(needs: Sequence[str] = (), asks: Sequence[str] = (), offers: Sequence[str] = ()) -> bytes:
    """A 64-bit ELF file with the sections that a loader reads: strings, symbols, their hash table, what it needs."""
    offers = sorted(offers, key=lambda symbol: gnu_hash(symbol) % 2)
    strings, places = b"\0", {}
    for text in (*needs, *asks, *offers):
        places[text] = len(strings)
        strings += text.encode() + b"\0"
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    for name in asks:
        symbols += struct.pack("<IBBHQQ", places[name], 0x12, 0, 0, 0, 0)
    for name in offers:
        symbols += struct.pack("<IBBHQQ", places[name], 0x12, 0, 7, 4096, 8)
    first = 1 + len(asks)
    buckets, chain = [0, 0], b""
    for number, name in enumerate(offers):
        bucket = gnu_hash(name) % 2
        buckets[bucket] = buckets[bucket] or first + number
        last = number + 1 == len(offers) or gnu_hash(offers[number + 1]) % 2 != bucket
        chain += struct.pack("<I", (gnu_hash(name) & ~1) | last)
    table = struct.pack("<IIIIQII", 2, first, 1, 5, 2**64 - 1, *buckets) + chain
    dynamic = b"".join(struct.pack("<QQ", 1, places[name]) for name in needs) + struct.pack("<QQ", 0, 0)
    parts = [(3, strings, 0), (11, symbols, 1), (0x6FFFFFF6, table, 2), (6, dynamic, 1)]
    body, headers = b"", struct.pack("<IIQQQQIIQQ", *[0] * 10)
    for kind, content, link in parts:
        headers += struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, 64 + len(body), len(content), link, 0, 8, 0)
        body += content + b"\0" * (-len(content) % 8)
    start = 64 + len(body)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, start, 0, 64, 56, 0, 64, len(parts) + 1, 0)
    return head + body + headers
