"""Pins: which requirements are one, and how a list of them is read."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from builder.base import pins


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("trl==1.16.0", "1.16.0"),
        ("torch===2.13.0+cpu", "2.13.0+cpu"),
        ("trl[vllm]==1.16.0 ; python_version >= '3.10'", "1.16.0"),
        ("trl", None),
        ("trl>=1.16", None),
        ("trl==1.*", None),
        ("trl===1*", None),
        ("trl==1.16.0,!=1.15", None),
        ("trl @ https://example.org/trl-1.0.tar.gz", None),
    ],
)
def test_a_requirement_of_one_version_is_a_pin(line: str, version: str | None) -> None:
    assert pins.exact(Requirement(line)) == version


def test_what_uv_wrote_is_read_as_versions_by_normalised_name() -> None:
    marked = "torch==2.13.0+cpu ; sys_platform == 'linux'"
    lines = ["# made by uv", "--index-url x==1", "Flash_Attn==2.8.0", marked, "    # via trl", "free", ""]
    assert pins.read("\n".join(lines)) == {"flash-attn": "2.8.0", "torch": "2.13.0+cpu"}
    assert pins.read("trl==1.0  # via -r requirements.in") == {"trl": "1.0"}


def test_pins_are_read_back_as_they_were_written() -> None:
    versions = {"torch": "2.13.0+cpu", "odd-name": "1!2.0.post1"}
    assert pins.read("\n".join(pins.lines(versions))) == versions
