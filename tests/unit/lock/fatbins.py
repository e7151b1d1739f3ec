"""Shared objects with kernels for chosen architectures, made of bytes."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

CUBIN, PTX = 2, 1
NONE, ARCHITECTURE, FAMILY = 0, 0x10_0000, 0x20_0000


def image(kind: int, number: int, flags: int = NONE, payload: bytes = b"kernel..") -> bytes:
    """An image of a fatbin: a header of 64 bytes, and what would be code."""
    head = struct.pack("<HHIQIIHHIIIQ", kind, 0x101, 64, len(payload), 0, 0, 1, 8, number, 0, 0, 0x8011 | flags)
    return head.ljust(64, b"\0") + payload


def fatbin(*images: bytes) -> bytes:
    """A fatbin with these images, and what pads it to the next one."""
    content = b"".join(images)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content + b"\0" * 8


def library(fatbins: Sequence[bytes], section: str = ".nv_fatbin") -> bytes:
    """A 64-bit ELF file with a section of fatbins, one without bytes, and the sections' names."""
    content = b"".join(fatbins)
    names = b"\0.bss\0" + section.encode() + b"\0.shstrtab\0"
    begin, strings = 64, 64 + len(content)
    table = strings + len(names)
    headers = [
        (0, 0, 0, 0),
        (1, 8, begin, 1 << 40),
        (6, 1, begin, len(content)),
        (names.index(b".shstrtab"), 3, strings, len(names)),
    ]
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, len(headers), 3
    )
    rows = b"".join(struct.pack("<IIQQQQIIQQ", *row[:2], 0, 0, *row[2:], 0, 0, 1, 0) for row in headers)
    return head + content + names + rows


def wheel(folder: Path, name: str, version: str, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in files.items():
            archive.writestr(member, content)
    return path
