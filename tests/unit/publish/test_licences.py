"""Licences: what packages declare, in the words they declare it in, and nothing more."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.image import oci
from builder.publish import licences
from tests.registry.conftest import image_of


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["License-Expression: Apache-2.0 AND MIT", "License: other"], ("Apache-2.0 AND MIT",)),
        (["License: BSD"], ("BSD",)),
        (["License: UNKNOWN", "Classifier: License :: OSI Approved :: MIT License"], ("MIT License",)),
        (["Classifier: License :: OSI Approved", "Classifier: Topic :: Software"], ()),
        (
            ["Classifier: License :: B", "Classifier: License :: OSI Approved :: A", "Classifier: License :: B"],
            ("A", "B"),
        ),
        (["License: Copyright 2020", "        Permission is granted", "        to nobody"], ()),
        (["License: " + "x" * 121], ()),
        ([], ()),
    ],
)
def test_what_a_wheel_declares(lines: list[str], expected: tuple[str, ...]) -> None:
    metadata = "\n".join(["Metadata-Version: 2.1", "Name: Tiny_Lib", *lines, "", "License: of the description"])
    assert licences.of_wheel(metadata) == ("tiny-lib", expected)


FORMAT = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{FORMAT}\nFiles: *\nLicense: GPL-2+\n text\n\nLicense: Expat\n\nLicense: GPL-2+\n", ("Expat", "GPL-2+")),
        (FORMAT.replace("https", "http") + "\nLicense: GPL-2+ or Artistic\n", ("GPL-2+ or Artistic",)),
        ("This is Debian's tiny.\n\nLicense: GPL-2+\n", ()),
        ("", ()),
    ],
)
def test_what_a_debian_package_declares(text: str, expected: tuple[str, ...]) -> None:
    assert licences.of_debian(text) == expected


SITE = "opt/venv/lib/python3.11/site-packages"


def test_they_are_read_out_of_the_image_and_links_are_followed(tmp_path: Path) -> None:
    copyright_ = f"{FORMAT}\nLicense: GPL-3+\n"
    layers: list[dict[str, str | Path]] = [
        {
            "usr/share/doc/base/copyright": copyright_,
            "usr/share/doc/folder": Path("base"),
            "usr/share/doc/file/copyright": Path("../base/copyright"),
            "usr/share/doc/round": Path("round"),
            "usr/share/doc/away": Path("../../../../etc"),
        },
        {f"{SITE}/tiny_lib-1.0.dist-info/METADATA": "Name: tiny-lib\nLicense: old\n"},
        {
            f"{SITE}/tiny_lib-1.0.dist-info/METADATA": "Name: tiny-lib\nLicense: MIT\n",
            f"{SITE}/tiny_lib/other-1.0.dist-info/METADATA": "Name: other\nLicense: vendored\n",
        },
    ]
    read = licences.read(image_of(tmp_path / "layout", layers))
    assert read.python == {"tiny-lib": ("MIT",)}
    assert read.debian == {"base": ("GPL-3+",), "folder": ("GPL-3+",), "file": ("GPL-3+",)}


def test_a_large_file_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oci, "SMALL", 100)
    text = "Name: tiny-lib\nLicense: MIT\n" + "x" * 100
    image = image_of(tmp_path / "layout", [{f"{SITE}/tiny_lib-1.0.dist-info/METADATA": text}])
    assert licences.read(image).python == {}
