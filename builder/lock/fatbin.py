"""Which GPUs the kernels in a shared object are for: the fat binaries (fatbins) that nvcc embeds in it.

A fatbin is a header and then images, each for one architecture: a cubin (machine code, `sm_90`) or PTX (what the
driver compiles, `compute_90`). A shared object has thousands, one fatbin for each file of kernels. The format is not
documented. The fields that are read here were found by comparing with `cuobjdump --list-elf` and `--list-ptx`, and
with the `.target` lines of the PTX; a test does so again.
"""

from __future__ import annotations

import mmap
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from builder.base import errors

SHARED_OBJECT = re.compile(r"\.so(\.[0-9]+)*$")
# The driver loads what lies in .nv_fatbin. __nv_relfatbin has relocatable objects; nvlink put them together when the
# library was built, and the result is in .nv_fatbin too. So what only __nv_relfatbin has runs nowhere.
LOADED, RELOCATABLE = ".nv_fatbin", "__nv_relfatbin"
MAGIC = struct.pack("<I", 0xBA55ED50)
HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes of the images
# Kind, -, bytes of this header and of the payload, -, -, -, -, architecture, -, -, flags.
IMAGE = struct.Struct("<HHIQIIHHIIIQ")
PTX, CUBIN = 1, 2
ARCHITECTURE_ONLY = 0x10_0000  # sm_90a: runs on this compute capability alone
FAMILY_ONLY = 0x20_0000  # sm_100f: runs on this and the later ones of its family
SECTION = struct.Struct("<IIQQQQIIQQ")
NO_BITS = 8  # the type of a section without bytes in the file
LARGEST = 8 << 30  # bytes of a library


def of_wheel(path: Path, scratch: Path) -> dict[str, Counter[str]]:
    """The images in each shared object of a wheel: its name in the wheel -> architecture -> number of images.

    Shared objects without any are left out. One at a time is unpacked to `scratch`, a folder on disk. Raises
    BadInputError when the wheel or a library is damaged.
    """
    libraries = {}
    try:
        with zipfile.ZipFile(path) as wheel:
            for member in wheel.infolist():
                if not SHARED_OBJECT.search(member.filename):
                    continue
                if member.file_size > LARGEST:
                    raise _damaged(f"{path.name}: {member.filename}", "it is larger than any library")
                with wheel.open(member) as packed, tempfile.TemporaryFile(dir=scratch) as file:
                    shutil.copyfileobj(packed, file, 1 << 20)
                    file.flush()
                    if images := of_file(file, f"{path.name}: {member.filename}"):
                        libraries[member.filename] = images
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise _damaged(path.name, f"not a readable wheel: {error}") from error
    return libraries


def of_environment(site_packages: Path) -> dict[str, Counter[str]]:
    """The same for every shared object below a folder of installed packages, by its path in there."""
    libraries = {}
    for path in sorted(site_packages.rglob("*.so*")):
        if SHARED_OBJECT.search(path.name) and path.is_file() and not path.is_symlink():
            name = path.relative_to(site_packages).as_posix()
            with path.open("rb") as file:
                if images := of_file(file, name):
                    libraries[name] = images
    return libraries


def of_file(file: IO[bytes], where: str, section: str = LOADED) -> Counter[str]:
    """How many images an open shared object has for each architecture, e.g. `sm_90a` or `compute_80`.

    Empty when it is no 64-bit ELF file: some files with this suffix are linker scripts. Raises BadInputError when it
    is an ELF file and damaged.
    """
    images: Counter[str] = Counter()
    file.seek(0)
    if file.read(6) != b"\x7fELF\x02\x01":
        return images
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            for name, begin, end in _sections(data):
                if name == section:
                    images.update(_images(data, begin, end))
        except (struct.error, ValueError, OverflowError) as error:
            raise _damaged(where, str(error)) from error
    return images


def _damaged(where: str, why: str) -> errors.BadInputError:
    return errors.BadInputError(
        f"{where}: {why}",
        cause="a file below .vetted/wheels was cut short or changed",
        next_step="remove that file, then run this again",
    )


def _sections(data: mmap.mmap) -> Iterator[tuple[str, int, int]]:
    """Name, first byte and last byte + 1 of every section that has bytes in the file. Raises ValueError."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    if count and (size != SECTION.size or names >= count or table + size * count > len(data)):
        raise ValueError("its section headers are outside of the file")
    headers = [SECTION.unpack_from(data, table + size * number) for number in range(count)]
    for offset, kind, _, _, begin, length, *_ in headers:
        if kind == NO_BITS:
            continue
        if begin + length > len(data):
            raise ValueError("a section ends after the file")
        start = headers[names][4] + offset
        stop = data.find(b"\0", start, start + 64)
        yield data[start:stop].decode("ascii", "replace") if stop >= 0 else "", begin, begin + length


def _images(data: mmap.mmap, begin: int, end: int) -> Iterator[str]:
    """The architecture of every image in a section. Raises ValueError."""
    place = begin
    while (place := data.find(MAGIC, place, end)) >= 0:
        if (place - begin) % 8:
            place += 1
            continue
        if end - place < HEADER.size:
            raise ValueError("a fatbin is cut off")
        _, _, header, length = HEADER.unpack_from(data, place)
        image, place = place + header, place + header + length
        if header < HEADER.size or place > end:
            raise ValueError("a fatbin ends after its section")
        while image < place:
            if place - image < IMAGE.size:
                raise ValueError("an image is cut off")
            kind, _, header, payload, _, _, _, _, architecture, _, _, flags = IMAGE.unpack_from(data, image)
            image += header + payload
            if header < IMAGE.size or image > place:
                raise ValueError("an image ends after its fatbin")
            if kind in (PTX, CUBIN):
                suffix = "a" if flags & ARCHITECTURE_ONLY else "f" if flags & FAMILY_ONLY else ""
                yield f"{'sm' if kind == CUBIN else 'compute'}_{architecture}{suffix}"
