"""The bill of materials: the same for the same lock and image, and valid whatever stands in a lock."""

from __future__ import annotations

import json
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from hypothesis import given
from hypothesis import strategies as st

from builder.lock import PACKAGE, PIN, Entry, assemble
from builder.publishing import sbom
from builder.stack import Stack
from tests.conftest import Small
from tests.registry.conftest import make_image


def refuses(bill: dict[str, Any]) -> str:
    """What CycloneDX's own schema says against it."""
    return str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) or "")


def test_the_same_lock_and_image_give_the_same_bill(small: Small) -> None:
    image = make_image(small).image
    first, again = sbom.make(small.lock, image), sbom.make(small.lock, image)
    assert first == again
    assert refuses(first) == ""
    assert first["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"  # the lock's epoch
    assert sbom.versions(first) == small.lock.versions
    assert sbom.lock_of(first) == small.lock.digest
    assert sbom.make(small.lock, make_image(small, "other").image)["serialNumber"] != first["serialNumber"]


def test_what_declares_no_licence_is_called_unknown(small: Small) -> None:
    image = make_image(small, metadata="Name: tiny-lib\n").image
    (one,) = [one for one in sbom.make(small.lock, image)["components"] if one["name"] == "tiny-lib"]
    assert "licenses" not in one
    assert one["properties"] == [{"name": "vetted:licence", "value": "unknown"}]


SHA256 = st.text("0123456789abcdef", min_size=64, max_size=64)
LICENCES = st.lists(
    st.one_of(st.sampled_from(["MIT", "GPL-2+", "MIT AND BSD-3-Clause", "Apache"]), st.text()), max_size=3
)


@given(
    st.from_regex(PIN.pattern.split("==")[0], fullmatch=True),
    st.from_regex(r"[A-Za-z0-9.+!_-]+", fullmatch=True),
    st.from_regex(PACKAGE.pattern.split("=", 1)[0], fullmatch=True),
    st.from_regex(r"[A-Za-z0-9.+:~-]+", fullmatch=True),
    SHA256,
    LICENCES,
)
def test_whatever_name_version_and_licence_a_lock_has_the_bill_is_valid(
    name: str, version: str, package: str, release: str, sha256: str, declared: list[str]
) -> None:
    stack = Stack.model_validate(
        {"title": "Tiny", "device": "cpu", "python": "3.11", "debian": "bookworm", "requires": ["x==1"]}
    )
    held = assemble(
        "tiny", stack, (Entry(name, version, sha256),), (), (Entry(package, release, sha256),), 1, "", ()
    )  # fmt: skip
    lines = [line for line in ("".join(c for c in one if c.isprintable()).strip() for one in declared) if line]
    bill = sbom.of(held, "sha256:" + sha256, {name: lines}, {package: lines})
    assert refuses(bill) == ""
    assert sbom.versions(bill) == {name: version}
    assert {one["version"] for one in bill["components"]} == {version, release}
