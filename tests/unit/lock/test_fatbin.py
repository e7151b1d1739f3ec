"""The reader of fatbins, on shared objects that are made here."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from builder.base import errors
from builder.lock import fatbin
from tests.unit.lock import fatbins
from tests.unit.lock.fatbins import ARCHITECTURE, CUBIN, FAMILY, PTX, image

TWO = fatbins.library(
    [
        fatbins.fatbin(image(CUBIN, 75), image(CUBIN, 90, ARCHITECTURE), image(PTX, 80)),
        fatbins.fatbin(image(CUBIN, 75), image(CUBIN, 100, FAMILY), image(64, 75), image(PTX, 120, ARCHITECTURE)),
    ]
)


def read(content: bytes, tmp_path: Path, section: str = fatbin.LOADED) -> dict[str, int]:
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    with path.open("rb") as file:
        return dict(fatbin.of_file(file, "lib.so", section))


def test_every_image_is_counted_by_its_architecture(tmp_path: Path) -> None:
    assert read(TWO, tmp_path) == {"sm_75": 2, "sm_90a": 1, "compute_80": 1, "sm_100f": 1, "compute_120a": 1}


def test_relocatable_code_is_not_what_the_driver_loads(tmp_path: Path) -> None:
    content = fatbins.library([fatbins.fatbin(image(PTX, 120))], fatbin.RELOCATABLE)
    assert read(content, tmp_path) == {}
    assert read(content, tmp_path, fatbin.RELOCATABLE) == {"compute_120": 1}


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"INPUT(-lcudart)\n", b"\x7fELF\x01\x01" + b"\0" * 60])
def test_another_file_has_no_kernels(content: bytes, tmp_path: Path) -> None:
    assert read(content, tmp_path) == {}


def test_a_wheel_and_an_environment_have_the_same_libraries(tmp_path: Path) -> None:
    empty = fatbins.library([])
    files = {"torch/lib/libtorch_cuda.so": TWO, "torch/_C.so.1": TWO, "torch/lib/libc10.so": empty, "torch/a.py": b""}
    for name, content in files.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_bytes(content)
    libraries = fatbin.of_wheel(fatbins.wheel(tmp_path, "torch", "1.0", files), tmp_path)
    assert list(libraries) == ["torch/lib/libtorch_cuda.so", "torch/_C.so.1"]
    assert fatbin.of_environment(tmp_path / "site") == libraries


def test_a_library_that_is_cut_off_is_an_error_with_its_name(tmp_path: Path) -> None:
    for length in range(6, len(TWO), 7):
        with pytest.raises(errors.BadInputError, match=r"lib\.so: "):
            read(TWO[:length], tmp_path)


def test_no_damage_ends_in_another_error(tmp_path: Path) -> None:
    """Bytes are changed at random; the reader says what it sees, or that the file is damaged."""
    chance = random.Random(0)
    for _ in range(500):
        content = bytearray(TWO)
        for _ in range(chance.randint(1, 8)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        try:
            read(bytes(content), tmp_path)
        except errors.BadInputError as error:
            assert error.next_step


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no more"])
def test_a_damaged_wheel_is_an_error_with_its_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "torch-1.0-py3-none-any.whl"
    path.write_bytes(content)
    with pytest.raises(errors.BadInputError, match=r"torch-1\.0-py3-none-any\.whl: "):
        fatbin.of_wheel(path, tmp_path)


def test_a_wheel_whose_library_does_not_unpack_is_an_error(tmp_path: Path) -> None:
    path = fatbins.wheel(tmp_path, "torch", "1.0", {"torch/_C.so": TWO * 50})
    content = bytearray(path.read_bytes())
    content[60:100] = b"\xff" * 40
    path.write_bytes(content)
    with pytest.raises(errors.BadInputError):
        fatbin.of_wheel(path, tmp_path)
