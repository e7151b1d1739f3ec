"""The bill of materials of an image, CycloneDX 1.6: the same lock and image give the same bytes.

It lists every Python distribution and Debian package with the hash of the installed file, the licence that the package
declares, and the patches; below a distribution the libraries that its wheel vendors and the components that its own
bills of materials name. This module takes as long to import as the rest of the tool: import it where it is needed.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import AttachedText, HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType, Diff, Patch, PatchClassification, Pedigree
from cyclonedx.model.dependency import Dependency
from cyclonedx.model.license import DisjunctiveLicense, License, LicenseAcknowledgement
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.utils import canonicalize_name
from pydantic import BaseModel

from builder import __version__
from builder.base.project import sha256_file
from builder.image import oci
from builder.lock.lockfile import Entry, Lock
from builder.publish import libraries, licences, purls
from builder.publish.libraries import Library, Vendored
from builder.publish.nested import NestedComponent

LOCK = "vetted:lock"  # the properties that this project adds
VERSION = "vetted:version"
UNKNOWN = "vetted:licence"
BUNDLED = "vetted:bundled"  # the path of a library in site-packages, or where else a component was found
IGNORED = "vetted:ignored"
FORMAT = ("vetted:bill", "2")  # raised when what is read out of an image changes


class _Property(BaseModel):
    name: str
    value: str


class _Metadata(BaseModel):
    properties: list[_Property]


class _Bill(BaseModel):
    """A bill of any version of Vetted, as far as it is read."""

    metadata: _Metadata


def make(lock: Lock, image: oci.Image) -> dict[str, Any]:
    """The bill of an image that was built from this lock. Raises BadInputError when a layer cannot be read."""
    declared = licences.read(image)
    vendored = libraries.read(image, lock.versions)
    return of(lock, image.manifest, declared.python, declared.debian, vendored)


def of(
    lock: Lock, image: str, python: Mapping[str, Sequence[str]], debian: Mapping[str, Sequence[str]],
    vendored: Vendored | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The bill of the image with this digest, whose distributions and packages declare these licences."""
    vendored = vendored or Vendored()
    distributions = [_distribution(lock, entry, python.get(entry.name, ())) for entry in lock.python]
    for entry, distribution in zip(lock.python, distributions, strict=True):
        _add(distribution, vendored, entry.name)
    packages = [_package(lock, entry, debian.get(entry.name, ())) for entry in lock.debian]
    subject = Component(
        name=lock.name, version=image, type=ComponentType.CONTAINER, bom_ref=image,
        description=lock.stack.title, hashes=[_hash(image)],
    )  # fmt: skip
    _add(subject, vendored, "")
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, f"{image} {lock.digest}"),
        metadata=BomMetaData(
            component=subject,
            tools=None,
            # The lock's day, as in the image: the bill is reproducible.
            timestamp=datetime.datetime.fromtimestamp(lock.epoch, datetime.UTC),
            properties=[
                Property(name=LOCK, value=lock.digest),
                Property(name=VERSION, value=__version__),
                Property(name=FORMAT[0], value=FORMAT[1]),
            ],
        ),
        components=[*distributions, *packages],
        dependencies=[
            Dependency(
                ref=subject.bom_ref,
                dependencies=[Dependency(ref=component.bom_ref) for component in (*distributions, *packages)],
            ),
            *(
                Dependency(
                    ref=distribution.bom_ref,
                    dependencies=[Dependency(ref=component.bom_ref) for component in distribution.components],
                )
                for distribution in distributions
                if distribution.components
            ),
        ],
    )
    bill: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    return bill


def lock_of(bill: dict[str, Any]) -> str | None:
    """The lock that a bill was made from. Raises ValidationError when Vetted did not make it."""
    return _properties(bill).get(LOCK)


def is_todays(bill: dict[str, Any], lock: Lock) -> bool:
    """Is it the bill that this version would make of an image of the lock? Raises ValidationError."""
    properties = _properties(bill)
    expected = {LOCK: lock.digest, VERSION: __version__, FORMAT[0]: FORMAT[1]}
    return all(properties.get(name) == value for name, value in expected.items())


def _properties(bill: dict[str, Any]) -> dict[str, str]:
    return {entry.name: entry.value for entry in _Bill.model_validate(bill).metadata.properties}


def _distribution(lock: Lock, entry: Entry, declared: Sequence[str]) -> Component:
    applied = [
        (patch, path)
        for patch, path in zip(lock.stack.patch, lock.patches, strict=True)
        if canonicalize_name(patch.package) == entry.name
    ]
    patches = [
        Patch(
            type=PatchClassification.UNOFFICIAL,
            diff=Diff(text=AttachedText(content=path.read_text(encoding="utf-8"), content_type="text/x-diff")),
        )
        for _, path in applied
    ]
    notes = [f"{patch.file} {sha256_file(path)}: {patch.reason}" for patch, path in applied]
    purl = purls.distribution(entry)
    pedigree = Pedigree(patches=patches, notes="\n".join(notes)) if patches else None
    return _component(entry, purl, declared, pedigree)


def _package(lock: Lock, entry: Entry, declared: Sequence[str]) -> Component:
    return _component(entry, purls.package(lock, entry), declared)


def _component(
    entry: Entry, purl: PackageURL, declared: Sequence[str], pedigree: Pedigree | None = None
) -> Component:  # fmt: skip
    return Component(
        name=entry.name, version=entry.version, type=ComponentType.LIBRARY, purl=purl, bom_ref=purl.to_string(),
        hashes=[_hash(entry.sha256)], licenses=_licences(declared), pedigree=pedigree,
        properties=[] if declared else [Property(name=UNKNOWN, value="unknown")],
    )  # fmt: skip


def _add(owner: Component, vendored: Vendored, name: str) -> None:
    """Add what a wheel vendors below its distribution."""
    for number, library in enumerate(vendored.libraries.get(name, ())):
        owner.components.add(_library(library, f"{owner.bom_ref.value}#library-{number}"))
    for number, component in enumerate(vendored.components.get(name, ())):
        owner.components.add(_nested(component, f"{owner.bom_ref.value}#part-{number}"))
    for reason in vendored.ignored.get(name, ()):
        owner.properties.add(Property(name=IGNORED, value=reason))


def _library(library: Library, ref: str) -> Component:
    versions = [
        Component(
            name=name, version=version, type=ComponentType.LIBRARY, bom_ref=f"{ref}-{number}",
            purl=PackageURL("generic", None, name, version),
            properties=[Property(name=BUNDLED, value="by a string in the library")],
        )
        for number, (name, version) in enumerate(library.versions)
    ]  # fmt: skip
    return Component(
        name=library.name, version=library.version, type=ComponentType.LIBRARY, bom_ref=ref, components=versions,
        hashes=[_hash(library.sha256)], properties=[Property(name=BUNDLED, value=library.path)],
    )  # fmt: skip


def _nested(component: NestedComponent, ref: str) -> Component:
    return Component(
        name=component.name, version=component.version, type=ComponentType.LIBRARY, bom_ref=ref,
        purl=PackageURL.from_string(component.purl) if component.purl else None,
        licenses=_licences(component.licences),
        hashes=[HashType(alg=HashAlgorithm(name), content=value) for name, value in component.hashes],
        properties=[Property(name=BUNDLED, value="by a bill of materials in the wheel")],
    )  # fmt: skip


def _hash(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest.removeprefix("sha256:"))


def _licences(declared: Sequence[str]) -> list[License]:
    """One SPDX expression, or names: what a package declares, in CycloneDX's terms."""
    acknowledgement = LicenseAcknowledgement.DECLARED
    if len(declared) == 1:
        return [LicenseFactory().make_from_string(declared[0], license_acknowledgement=acknowledgement)]
    return [DisjunctiveLicense(name=name, acknowledgement=acknowledgement) for name in declared]
