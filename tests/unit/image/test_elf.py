"""The processor of each program in an image: one for another processor stops a build."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base import errors
from builder.image import elf, oci
from builder.image.oci import Image
from builder.intent.platform import AMD64, ARM64
from tests.unit.image.test_oci import File, Layout


def program(machine: int, order: str = "little") -> bytes:
    """The beginning of an ELF file for a machine."""
    kind = b"\x02\x01\x01" if order == "little" else b"\x02\x02\x01"
    return b"\x7fELF" + kind + bytes(11) + machine.to_bytes(2, "little" if order == "little" else "big") + bytes(44)


def image(folder: Path, *files: File) -> Image:
    return oci.read(Layout(folder, [(File("etc/passwd"),), files], architecture="arm64").root)


def test_an_image_of_its_platforms_programs_passes(tmp_path: Path) -> None:
    files = (
        File("usr/bin/tool", program(ARM64.elf)), File("opt/kernel.cubin", program(elf.CUDA)), File("tiny", b"\x7fELF"),
        File("usr/bin/link", link="tool"), File("script", b"#!/bin/sh\n" + b"x" * 40), File("empty", b""),
    )  # fmt: skip
    elf.refuse_others(image(tmp_path, *files), ARM64)


@pytest.mark.parametrize("header", [program(AMD64.elf), program(8, "big")])
def test_a_program_for_another_processor_is_named(tmp_path: Path, header: bytes) -> None:
    built = image(tmp_path, File("usr/bin/tool", program(ARM64.elf)), File("opt/venv/bin/strange", header))
    with pytest.raises(errors.VettedError, match=r"not for aarch64: /opt/venv/bin/strange \(machine (62|8)\)"):
        elf.refuse_others(built, ARM64)


def test_the_first_of_many_are_named(tmp_path: Path) -> None:
    built = image(tmp_path, *(File(f"lib{number}.so", program(AMD64.elf)) for number in range(9)))
    with pytest.raises(errors.VettedError) as caught:
        elf.refuse_others(built, ARM64)
    assert caught.value.what.count("machine 62") == elf.SHOWN


def test_programs_of_this_machine_are_read_as_such() -> None:
    with Path("/proc/self/exe").open("rb") as file:
        assert elf.machine_of(file.read(elf.HEADER)) in (AMD64.elf, ARM64.elf)
