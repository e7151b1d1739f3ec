"""Judging an image by what is attached to it: every doubt is a sentence, and an image is good when there is none.

Nothing that a registry says is believed. What counts is signed with the key at hand, speaks of this very digest, and
agrees with this project: its suite, its lock of that stack, its advisories.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.base import errors
from builder.base.project import Project
from builder.certify import certificate, judgement
from builder.certify.certificate import Statement
from builder.image import oci
from builder.intent import stack
from builder.lock import lockfile
from builder.publish import attached, provenance, registry, release, signing
from builder.publish.reference import Reference
from builder.publish.release import Release
from builder.publish.signing import Envelope


@dataclass(frozen=True)
class Signed:
    """A statement whose signature holds, and that speaks of the image."""

    envelope: Envelope
    kind: str  # one of attached.KINDS' words

    @property
    def predicate(self) -> dict[str, Any]:
        said = self.envelope.statement.get("predicate")
        return said if isinstance(said, dict) else {}


@dataclass(frozen=True)
class Judged:
    """A certificate on the image, and what speaks against it."""

    statement: Statement
    doubts: tuple[str, ...]

    @property
    def hardware(self) -> str:
        return self.statement.hardware


@dataclass(frozen=True)
class Verdict:
    """What came of it. `doubts` are those about the image itself; each certificate has its own."""

    reference: str
    image: str
    stack: str | None = None
    lock: str | None = None
    certificates: tuple[Judged, ...] = ()
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    releases: tuple[Release, ...] | None = None  # None: nothing at all is signed with the key

    @property
    def good(self) -> bool:
        """Is there no doubt about the image, and at least one certificate that holds?"""
        return not self.doubts and any(not one.doubts for one in self.certificates)


def remote(
    project: Project, reference: Reference, keys: Sequence[Path], scratch: Path, hardware: str | None = None, *,
    allow_rollback: bool = False,
) -> Verdict:  # fmt: skip
    """Judge an image in a registry; any of the keys may have signed. Raises NetworkError when there is no telling."""
    repository = reference.repository
    image = reference.digest or registry.resolve(repository, reference.tag or "")
    manifest = registry.manifest(repository, image) if image else None
    if image is None or manifest is None:
        return Verdict(str(reference), image or "", doubts=(f"there is no image {reference}",))
    ignored: list[str] = []
    envelopes = attached.fetch(repository, image, ignored)

    def judge(key: Path) -> Verdict:
        verdict = _judge(project, str(reference), image, manifest, envelopes, ignored, key, scratch, hardware)
        if reference.digest or reference.tag is None or verdict.releases is None:
            return verdict  # a digest cannot go back
        went_back = release.doubts(
            project, str(reference), reference.tag, image, verdict.releases, allow_rollback=allow_rollback
        )
        return dataclasses.replace(verdict, doubts=(*verdict.doubts, *went_back))

    return _best([judge(key) for key in keys])


def _best(verdicts: Sequence[Verdict]) -> Verdict:
    """Of what came of each key the one that counts: a good one, else one for which anything is signed."""
    good = next((one for one in verdicts if one.good), None)
    return good or next((one for one in verdicts if one.releases is not None), verdicts[0])


def local(
    project: Project, layout: Path, image: str | None, keys: Sequence[Path], scratch: Path, hardware: str | None
) -> Verdict:  # fmt: skip
    """Judge an image in an OCI layout, without a network: every blob of it is read. Raises BadInputError."""
    try:
        subjects = [one for one in oci.manifests(layout) if "subject" not in oci.json_of(layout, one)]
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise errors.BadInputError(
            f"{layout} is not an OCI layout: {error}",
            cause="another folder was meant, or a copy was cut short",
            next_step=f"oras cp --recursive --to-oci-layout HOST/PATH@sha256:… {layout}",
        ) from error
    if image is None and len(subjects) != 1:
        raise errors.BadInputError(
            f"{layout} holds {len(subjects)} images", next_step=f"name one: {layout}@{next(iter(subjects), 'sha256:…')}"
        )
    held = oci.read(layout, image or subjects[0])
    ignored: list[str] = []
    envelopes = attached.read(layout, held.manifest, ignored)
    manifest = oci.checked(layout, held.manifest)
    verdict = _best(
        [
            _judge(project, str(layout), held.manifest, manifest, envelopes, ignored, key, scratch, hardware)
            for key in keys
        ]
    )
    broken = tuple(f"the image is damaged: {what}" for what in oci.damaged(held))
    return dataclasses.replace(verdict, doubts=(*broken, *verdict.doubts))


def _judge(
    project: Project, reference: str, image: str, manifest: bytes, envelopes: Sequence[Envelope],
    ignored: Sequence[str], key: Path, scratch: Path, hardware: str | None,
) -> Verdict:  # fmt: skip
    from builder.publish import sbom  # takes as long to import as all the rest of the tool

    skipped = tuple(f"ignored {what}" for what in ignored)
    if not envelopes:
        nothing = "nothing is attached to it: it was never published with a certificate"
        if ignored:
            nothing = "nothing that is attached to it can be used"
        return Verdict(reference, image, doubts=(nothing,), notes=skipped)
    held, refused = signed(envelopes, image, manifest, key, scratch)
    notes = (*skipped, *(f"ignored {what}: {why}" for what, why in refused)) if held else skipped
    doubts = [] if held else [f"{what}: {why}" for what, why in refused]
    bill, origin = _only(held, "bill of materials", doubts), _only(held, "provenance", doubts)
    try:
        name, locked = provenance.stack_of(origin) if origin else (None, None)
        if bill and origin and sbom.lock_of(bill) != locked:
            doubts.append(f"the bill of materials is of lock {sbom.lock_of(bill)}, the provenance of {locked}")
    except (KeyError, TypeError, ValueError) as error:
        name, locked = None, None
        doubts.append(f"the bill of materials or the provenance was not made by Vetted: {error!r} is not in it")
    doubts += _of_stack(project, name, locked)
    known = name is not None and name in stack.names(project)
    terms = judgement.terms(project, lockfile.load(project, name)) if name is not None and known else None
    certificates = []
    for one in held:
        if one.kind == "certificate":
            try:
                statement = certificate.parse(one.envelope.payload)
            except (ValueError, RecursionError) as error:
                doubts.append(f"a certificate is signed, but cannot be read: {str(error).splitlines()[0]}")
                continue
            against = judgement.against(statement, terms, image) if terms else ["there is no lock to judge it by"]
            certificates.append(Judged(statement, tuple(against)))
    if held and not certificates:
        doubts.append("no certificate is among what is attached")
    if hardware is not None and certificates:
        earned = certificates
        certificates = [one for one in certificates if _ran_on(one.statement, hardware)]
        if not certificates:
            there = "; ".join(sorted({one.hardware for one in earned}))
            doubts.append(f"no certificate was earned on {hardware}, only on: {there}")
    releases = tuple(_releases(held)) if held else None
    return Verdict(reference, image, name, locked, tuple(certificates), tuple(doubts), notes, releases)


def _releases(held: Sequence[Signed]) -> Iterator[Release]:
    for one in held:
        if one.kind == attached.KINDS[attached.RELEASE] and (said := release.read(one.predicate)):
            yield said


def signed(
    envelopes: Sequence[Envelope], image: str, manifest: bytes, key: Path, scratch: Path
) -> tuple[list[Signed], list[tuple[str, str]]]:
    """Those of the statements that hold: signed with the key, about this image; and the others, with the reason."""
    held, refused = [], []
    for envelope in envelopes:
        kind = attached.KINDS.get(envelope.predicate_type)
        if kind is None:
            unread = "it is none of Vetted's" if envelope.statement else "it is no JSON that all readers read alike"
            refused.append(("an attestation of another kind", unread))
            continue
        why = signing.holds(envelope, manifest, key, scratch)
        if why is None and not speaks_of(envelope.statement, image):
            why = signing.OTHER_DIGEST
        if why is None:
            held.append(Signed(envelope, kind))
        else:
            refused.append((kind, why))
    return held, refused


def speaks_of(statement: Mapping[str, Any], image: str) -> bool:
    """Is the image the one subject of a statement?"""
    subjects = statement.get("subject")
    if not isinstance(subjects, list) or len(subjects) != 1 or not isinstance(subjects[0], dict):
        return False
    digest = subjects[0].get("digest")
    return isinstance(digest, dict) and f"sha256:{digest.get('sha256')}" == image


def _only(held: Sequence[Signed], kind: str, doubts: list[str]) -> dict[str, Any] | None:
    """The one statement of a kind; of several, that they are not the same is a doubt."""
    found = {json.dumps(one.predicate, sort_keys=True): one.predicate for one in held if one.kind == kind}
    if held and len(found) != 1:
        doubts.append(f"there is no {kind}" if not found else f"there are {len(found)} that differ of: {kind}")
    return next(iter(found.values())) if len(found) == 1 else None


def _of_stack(project: Project, name: str | None, locked: str | None) -> list[str]:
    """Does this project have the stack, with that lock?"""
    if name is None:
        return []
    if name not in stack.names(project):
        return [f"this project has no stack {name!r}, whose lock could be compared"]
    if (here := lockfile.load(project, name).digest) != locked:
        return [f"it was built from another lock of {name} than this project's\nexpected {here}\ngot      {locked}"]
    return []


def _ran_on(statement: Statement, hardware: str) -> bool:
    """Is that a whole word of what the certificate says of the hardware? "H20" is no "H200"."""
    said = json.dumps(list((statement.resource("hardware").annotations or {}).values()), ensure_ascii=False)
    return re.search(rf"(?<!\w){re.escape(hardware)}(?!\w)", said, re.IGNORECASE) is not None
