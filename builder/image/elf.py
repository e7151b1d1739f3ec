"""The processor that each program and library of an image is for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from builder.base import errors
from builder.image import oci
from builder.intent.platform import Platform

MAGIC = b"\x7fELF"
HEADER = 20  # bytes, of which the last two are e_machine
CUDA = 190  # kernels, for a GPU: they are the same on every platform
SHOWN = 5


def refuse_others(image: oci.Image, platform: Platform) -> None:
    """Raise VettedError when a program or library of an image is for another processor."""
    if files := list(itertools.islice(others(image, platform), SHOWN)):
        raise errors.VettedError(
            f"not for {platform.machine}: " + ", ".join(f"/{path} (machine {number})" for path, number in files),
            cause="a distribution brings programs for one processor in a file that says it is for all",
            next_step="leave that distribution out, or take the platform out of `platforms` in stack.toml",
        )


def others(image: oci.Image, platform: Platform) -> Iterator[tuple[str, int]]:
    """The ELF files of an image that are not for a platform, each with the number of its machine."""
    for path, size, content in oci.members(image, lambda _: True):
        if isinstance(content, str) or size < HEADER:
            continue
        machine = machine_of(content.read(HEADER))
        if machine not in (None, platform.elf, CUDA):
            yield path, machine


def machine_of(header: bytes) -> int | None:
    """The machine in the first bytes of a file; None where it is no ELF file."""
    if not header.startswith(MAGIC):
        return None
    return int.from_bytes(header[18:20], "big" if header[5] == 2 else "little")
