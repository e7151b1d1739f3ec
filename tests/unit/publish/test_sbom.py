"""The bill of materials: the same for the same lock and image, and valid for any lock."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from builder.intent.stack import Stack
from builder.lock.lockfile import PACKAGE, PIN, Entry, assemble
from builder.publish import libraries, nested, sbom
from builder.publish.nested import NestedComponent
from tests import schemas
from tests.conftest import Small
from tests.registry.conftest import image_of, make_image


def versions(bill: dict[str, Any]) -> dict[str, str]:
    """The Python distributions of a bill: name to version."""
    components = (entry for entry in bill["components"] if entry["purl"].startswith("pkg:pypi/"))
    return {entry["name"]: entry["version"] for entry in components}


def refuses(bill: dict[str, Any]) -> str:
    """What CycloneDX's own schema says against it."""
    return schemas.bill_error(json.dumps(bill))


def test_the_same_lock_and_image_give_the_same_bill(small: Small) -> None:
    image = make_image(small).image
    first, again = sbom.make(small.lock, image), sbom.make(small.lock, image)
    assert first == again
    assert refuses(first) == ""
    assert first["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"  # the lock's epoch
    assert versions(first) == small.lock.versions
    assert sbom.lock_of(first) == small.lock.digest
    assert sbom.make(small.lock, make_image(small, "other").image)["serialNumber"] != first["serialNumber"]


def test_what_declares_no_licence_is_called_unknown(small: Small) -> None:
    image = make_image(small, metadata="Name: tiny-lib\n").image
    (tiny,) = [entry for entry in sbom.make(small.lock, image)["components"] if entry["name"] == "tiny-lib"]
    assert "licenses" not in tiny
    assert tiny["properties"] == [{"name": "vetted:licence", "value": "unknown"}]


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
    lock = assemble(
        "tiny", stack, (Entry(name, version, sha256),), (), (Entry(package, release, sha256),), 1, "", ()
    )  # fmt: skip
    lines = [line for line in ("".join(c for c in licence if c.isprintable()).strip() for licence in declared) if line]
    bill = sbom.of(lock, "sha256:" + sha256, {name: lines}, {package: lines})
    assert refuses(bill) == ""
    assert versions(bill) == {name: version}
    assert {component["version"] for component in bill["components"]} == {version, release}


# --- what wheels bring along ---------------------------------------------------------------------------------------

INFO = "tiny_lib-1.0.dist-info"
CRYPTO = "\0\0OpenSSL 1.1.1k  FIPS 25 Mar 2021\0\0"
CYCLONEDX = {
    "bomFormat": "CycloneDX", "specVersion": "1.5",
    "metadata": {"component": {"type": "library", "name": "tiny-lib", "version": "1.0"}},
    "components": [
        {
            "type": "library", "group": "org", "name": "outer", "version": "2.0", "purl": "pkg:cargo/outer@2.0",
            "hashes": [{"alg": "SHA-256", "content": "A" * 64}, {"alg": "SHA-256", "content": "short"}, 7],
            "licenses": [{"license": {"id": "MIT"}}, {"expression": 7}],
            "components": [{"type": "alien", "name": "inner", "purl": "no url", "bom-ref": "outer"}],
        },
        {"name": ""}, "text", {"name": "outer", "version": "2.0"},
    ],
}  # fmt: skip
SPDX = {
    "spdxVersion": "SPDX-2.3",
    "packages": [
        {
            "name": "openssl", "versionInfo": "3.0.1", "licenseDeclared": "Apache-2.0",
            "checksums": [{"algorithm": "SHA256", "checksumValue": "b" * 64}],
            "externalRefs": [{"referenceType": "purl", "referenceLocator": "pkg:generic/openssl@3.0.1"}],
        },
        {"name": "plain", "licenseDeclared": "NOASSERTION"},
    ],
}  # fmt: skip


def bill_of(small: Small, layout: Path, files: dict[str, str]) -> dict[str, Any]:
    """The bill of an image with these files in its site-packages."""
    site = f"opt/venv/{small.lock.site_packages}"
    bill = sbom.make(small.lock, image_of(layout, [{f"{site}/{name}": text for name, text in files.items()}]))
    assert refuses(bill) == ""
    return bill


def of_tiny(bill: dict[str, Any]) -> dict[str, Any]:
    (tiny,) = [entry for entry in bill["components"] if entry["name"] == "tiny-lib"]
    assert isinstance(tiny, dict)
    return tiny


def test_a_bundled_library_is_listed_with_its_hash_and_the_versions_in_it(small: Small, tmp_path: Path) -> None:
    record = "tiny/lib/libown.so,sha256=x,1\n"
    bill = bill_of(
        small, tmp_path / "image",
        {
            "tiny_lib.libs/libcrypto-5409cd36.so.1.1.1k": CRYPTO, "tiny/lib/libown.so": "deflate 1.2.11 Copyright",
            "tiny/lib.cpython-311-x86_64-linux-gnu.so": CRYPTO, "stray/libstray.so": "x", f"{INFO}/RECORD": record,
        },
    )  # fmt: skip
    tiny = of_tiny(bill)
    own, crypto = sorted(tiny["components"], key=lambda component: str(component["name"]), reverse=True)
    assert (crypto["name"], crypto["version"]) == ("libcrypto-5409cd36.so.1.1.1k", "1.1.1k")
    assert crypto["hashes"][0]["content"] == hashlib.sha256(CRYPTO.encode()).hexdigest()
    path = "tiny_lib.libs/libcrypto-5409cd36.so.1.1.1k"
    assert crypto["properties"] == [{"name": "vetted:bundled", "value": path}]
    (openssl,) = crypto["components"]
    assert (openssl["purl"], openssl["version"]) == ("pkg:generic/openssl@1.1.1k", "1.1.1k")
    assert (own["name"], own["version"]) == ("libown.so", "1.2.11")
    (stray,) = bill["metadata"]["component"]["components"]
    assert stray["name"] == "libstray.so" and "version" not in stray
    depends = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
    assert sorted(depends[tiny["bom-ref"]]) == sorted([own["bom-ref"], crypto["bom-ref"]])
    assert versions(bill) == small.lock.versions


def test_the_bills_inside_a_wheel_are_merged(small: Small, tmp_path: Path) -> None:
    files = {f"{INFO}/sboms/a.cdx.json": json.dumps(CYCLONEDX), f"{INFO}/sboms/b.spdx.json": json.dumps(SPDX)}
    components = of_tiny(bill_of(small, tmp_path / "image", files))["components"]
    by_name = {str(component["name"]): component for component in components}
    assert set(by_name) == {"org/outer", "outer", "inner", "openssl", "plain"}
    assert by_name["org/outer"]["purl"] == "pkg:cargo/outer@2.0"
    assert by_name["org/outer"]["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert by_name["org/outer"]["licenses"] == [{"license": {"id": "MIT", "acknowledgement": "declared"}}]
    assert by_name["openssl"]["purl"] == "pkg:generic/openssl@3.0.1"
    assert "licenses" not in by_name["plain"] and "purl" not in by_name["inner"]


def test_a_version_is_found_across_two_pieces(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "PIECE", 1000)
    bill = bill_of(small, tmp_path / "image", {"tiny_lib.libs/libx.so": "x" * 990 + CRYPTO + "x" * 2000})
    assert of_tiny(bill)["components"][0]["version"] == "1.1.1k"


def test_a_bill_of_an_earlier_format_is_made_again(small: Small) -> None:
    bill = sbom.make(small.lock, make_image(small).image)
    assert sbom.is_todays(bill, small.lock)
    bill["metadata"]["properties"] = [
        entry for entry in bill["metadata"]["properties"] if entry["name"] != "vetted:bill"
    ]
    assert not sbom.is_todays(bill, small.lock)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.sampled_from(["pkg:a/b@c", "SHA-256"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["name", "version", "purl", "hashes", "licenses", "license", "components", "packages",
                             "alg", "content", "checksums", "externalRefs", "id", "group"]), inner, max_size=4
        ),
    ),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.parametrize(
    "bill",
    [{}, {"metadata": 7}, {"metadata": {"properties": {}}}, {"metadata": {"properties": [{"name": "vetted:lock"}]}},
     {"metadata": {"properties": [{"name": "vetted:lock", "value": 7}]}}],
)  # fmt: skip
def test_a_bill_that_vetted_did_not_make_names_no_lock(bill: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        sbom.lock_of(bill)


@given(JSON, st.booleans())
def test_whatever_a_bill_in_a_wheel_says_the_bill_is_valid(value: Any, spdx: bool) -> None:
    cyclonedx = {"bomFormat": "CycloneDX", "components": value}
    document = {"spdxVersion": "SPDX-2.3", "packages": value} if spdx else cyclonedx
    components, _ = nested.read(json.dumps(document).encode(), "tiny-lib")
    vendored = libraries.Vendored(
        components={"tiny": [*components, NestedComponent("always", licences=("MIT AND", "x"))]}
    )
    stack = Stack.model_validate(
        {"title": "Tiny", "device": "cpu", "python": "3.11", "debian": "bookworm", "requires": ["x==1"]}
    )
    lock = assemble("tiny", stack, (Entry("tiny", "1", "0" * 64),), (), (), 1, "", ())
    assert refuses(sbom.of(lock, "sha256:" + "1" * 64, {}, {}, vendored)) == ""
