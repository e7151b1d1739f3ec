"""Judge an image by what is attached to it: every doubt is a sentence, and an image without a doubt is good.

Nothing that a registry says is believed. What counts is signed with the given key, is about exactly this digest, and
agrees with this project: its suite, its lock of the stack, its advisories.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from builder.base import text
from builder.base.project import Project
from builder.certify import certificate, judgement
from builder.certify.certificate import Statement
from builder.certify.judgement import Terms
from builder.image import index, oci
from builder.intent import stack
from builder.lock import lockfile
from builder.publish import attached, provenance, registry, release, signing
from builder.publish.policy.rule import Rule
from builder.publish.reference import Reference
from builder.publish.release import Release
from builder.publish.signing import Envelope


@dataclass(frozen=True)
class SignedStatement:
    """A statement that the key signed, about the image. `kind`: one of the words of attached.KINDS."""

    envelope: Envelope
    kind: str

    @property
    def predicate(self) -> dict[str, Any]:
        predicate = self.envelope.statement.get("predicate")
        return predicate if isinstance(predicate, dict) else {}


@dataclass(frozen=True)
class JudgedCertificate:
    """A certificate on the image, and the doubts about it."""

    statement: Statement
    doubts: tuple[str, ...]

    @property
    def hardware(self) -> str:
        return self.statement.hardware


@dataclass(frozen=True)
class Verdict:
    """The judgement of an image. `doubts` are those about the image itself; each certificate has its own."""

    reference: str
    image: str
    stack: str | None = None
    lock: str | None = None
    certificates: tuple[JudgedCertificate, ...] = ()
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    releases: tuple[Release, ...] | None = None  # None: nothing at all is signed with the key

    @property
    def good(self) -> bool:
        """Is there no doubt about the image, and at least one certificate without a doubt?"""
        return not self.doubts and any(not judged.doubts for judged in self.certificates)


@dataclass(frozen=True)
class _Case:
    """An image and what is attached to it, before any key is used. A rule replaces today's lock and suite."""

    project: Project
    reference: str
    image: str
    manifest: bytes
    envelopes: Sequence[Envelope]
    ignored: Sequence[str]
    scratch: Path
    hardware: str | None
    rule: Rule | None


def remote(
    project: Project, reference: Reference, keys: Sequence[Path], scratch: Path, hardware: str | None = None, *,
    allow_rollback: bool = False, rule: Rule | None = None,
) -> Verdict:  # fmt: skip
    """Judge an image in a registry; any of the keys may have signed. Raises NetworkError when the registry fails."""
    repository = reference.repository
    image = reference.digest or registry.resolve(repository, reference.tag or "")
    manifest = registry.manifest(repository, image) if image else None
    if image is None or manifest is None:
        return Verdict(str(reference), image or "", doubts=(f"there is no image {reference}",))
    if images := index.listed(manifest):
        rows = [f"{platform}  {repository}@{digest}" for platform, digest in images.items()]
        what = "\n".join(["it is an index of images; each is verified by its own digest:", *rows])
        return Verdict(str(reference), image, doubts=(what,))
    ignored: list[str] = []
    envelopes = attached.fetch(repository, image, ignored)
    case = _Case(project, str(reference), image, manifest, envelopes, ignored, scratch, hardware, rule)

    def judge(key: Path) -> Verdict:
        verdict = _judge(case, key)
        if reference.digest or reference.tag is None or verdict.releases is None:
            return verdict  # a digest cannot go back
        went_back = release.doubts(
            project, str(reference), reference.tag, image, verdict.releases, allow_rollback=allow_rollback
        )
        return dataclasses.replace(verdict, doubts=(*verdict.doubts, *went_back))

    return _best([judge(key) for key in keys])


def _best(verdicts: Sequence[Verdict]) -> Verdict:
    """Of one verdict for each key the one that counts: a good one, else one for which anything is signed."""
    good = next((verdict for verdict in verdicts if verdict.good), None)
    return good or next((verdict for verdict in verdicts if verdict.releases is not None), verdicts[0])


def local(
    project: Project, layout: Path, image: str | None, keys: Sequence[Path], scratch: Path, hardware: str | None,
    rule: Rule | None = None,
) -> Verdict:  # fmt: skip
    """Judge an image in an OCI layout, without a network: every blob of it is read. Raises BadInputError."""
    content = oci.read(layout, attached.subject(layout, image))
    ignored: list[str] = []
    envelopes = attached.read(layout, content.manifest, ignored)
    manifest = oci.checked(layout, content.manifest)
    case = _Case(project, str(layout), content.manifest, manifest, envelopes, ignored, scratch, hardware, rule)
    verdict = _best([_judge(case, key) for key in keys])
    damages = tuple(f"the image is damaged: {damage}" for damage in oci.damaged(content))
    return dataclasses.replace(verdict, doubts=(*damages, *verdict.doubts))


def _judge(case: _Case, key: Path) -> Verdict:
    skipped = tuple(f"ignored {what}" for what in case.ignored)
    if not case.envelopes:
        nothing = "nothing is attached to it: it was never published with a certificate"
        if case.ignored:
            nothing = "nothing that is attached to it can be used"
        return Verdict(case.reference, case.image, doubts=(nothing,), notes=skipped)
    statements, refused = signed(case.envelopes, case.image, case.manifest, key, case.scratch)
    notes = (*skipped, *(f"ignored {kind}: {reason}" for kind, reason in refused)) if statements else skipped
    doubts = [] if statements else [f"{kind}: {reason}" for kind, reason in refused]
    name, lock = _origin(statements, doubts)
    doubts += [] if case.rule else _of_stack(case.project, name, lock)
    in_project = name is not None and name in stack.names(case.project)
    terms = judgement.terms(case.project, lockfile.load(case.project, name)) if name and in_project else None
    certificates = _certificates(case, statements, terms, doubts)
    releases = tuple(_releases(statements)) if statements else None
    return Verdict(case.reference, case.image, name, lock, certificates, tuple(doubts), notes, releases)


def _origin(statements: Sequence[SignedStatement], doubts: list[str]) -> tuple[str | None, str | None]:
    """The stack and the lock that the provenance names; appends to the doubts."""
    from builder.publish import sbom  # takes as long to import as all the rest of the tool

    bill, origin = _only(statements, "bill of materials", doubts), _only(statements, "provenance", doubts)
    try:
        name, lock = provenance.stack_of(origin) if origin is not None else (None, None)
        billed = sbom.lock_of(bill) if bill is not None else None
        if bill is not None and origin is not None and billed != lock:
            doubts.append(text.line(f"the bill of materials is of lock {billed}, the provenance of {lock}"))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        what = f"the bill of materials or the provenance was not made by Vetted: no {where} that can be read"
        doubts.append(text.line(what))
        return None, None
    return name, lock


def _certificates(
    case: _Case, statements: Sequence[SignedStatement], terms: Terms | None, doubts: list[str]
) -> tuple[JudgedCertificate, ...]:
    """The certificates on the image, judged; those of other hardware than the required one are left out."""
    judged = []
    for signed_statement in statements:
        if signed_statement.kind != attached.KINDS[certificate.PREDICATE]:
            continue
        try:
            statement = certificate.parse(signed_statement.envelope.payload)
        except (ValueError, RecursionError) as error:
            doubts.append(f"a certificate is signed, but cannot be read: {str(error).splitlines()[0]}")
            continue
        judged.append(JudgedCertificate(statement, tuple(_against(case, statement, terms))))
    if statements and not judged:
        doubts.append("no certificate is among what is attached")
    if case.hardware is None or not judged:
        return tuple(judged)
    there = [entry for entry in judged if _ran_on(entry.statement, case.hardware)]
    if not there:
        elsewhere = "; ".join(sorted({entry.hardware for entry in judged}))
        doubts.append(text.line(f"no certificate was earned on {case.hardware}, only on: {elsewhere}"))
    return tuple(there)


def _against(case: _Case, statement: Statement, terms: Terms | None) -> list[str]:
    """The doubts about a certificate. A rule accepts those of earlier locks and suites, too, whose numbers only the
    bounds that they name can judge."""
    if case.rule is None:
        return judgement.doubts(statement, terms, case.image) if terms else ["there is no lock to judge it by"]
    doubts = case.rule.doubts(statement, certificate.today())
    if terms and judgement.is_of_today(statement, terms):
        doubts += [doubt for doubt in judgement.doubts(statement, terms, case.image) if doubt not in doubts]
    return doubts


def _releases(statements: Sequence[SignedStatement]) -> Iterator[Release]:
    for statement in statements:
        if statement.kind == attached.KINDS[attached.RELEASE] and (parsed := release.read(statement.predicate)):
            yield parsed


def signed(
    envelopes: Sequence[Envelope], image: str, manifest: bytes, key: Path, scratch: Path
) -> tuple[list[SignedStatement], list[tuple[str, str]]]:
    """The statements that the key signed about this image; and the others: kind, and reason for refusing it."""
    statements, refused = [], []
    for envelope in envelopes:
        kind = attached.KINDS.get(envelope.predicate_type)
        if kind is None:
            unread = "it is not Vetted's" if envelope.statement else "it is no JSON that all readers read alike"
            refused.append(("an attestation of another kind", unread))
            continue
        reason = signing.doubt(envelope, manifest, key, scratch)
        if reason is None and not is_about(envelope.statement, image):
            reason = signing.OTHER_DIGEST
        if reason is None:
            statements.append(SignedStatement(envelope, kind))
        else:
            refused.append((kind, reason))
    return statements, refused


def is_about(statement: Mapping[str, Any], image: str) -> bool:
    """Is the image the one subject of a statement?"""
    subjects = statement.get("subject")
    if not isinstance(subjects, list) or len(subjects) != 1 or not isinstance(subjects[0], dict):
        return False
    digest = subjects[0].get("digest")
    return isinstance(digest, dict) and f"sha256:{digest.get('sha256')}" == image


def _only(statements: Sequence[SignedStatement], kind: str, doubts: list[str]) -> dict[str, Any] | None:
    """The one predicate of a kind; that there is none, or that several differ, is added to the doubts."""
    predicates = {
        json.dumps(statement.predicate, sort_keys=True): statement.predicate
        for statement in statements
        if statement.kind == kind
    }
    if statements and len(predicates) != 1:
        doubts.append(f"there are {len(predicates)} that differ of: {kind}" if predicates else f"there is no {kind}")
    return next(iter(predicates.values())) if len(predicates) == 1 else None


def _of_stack(project: Project, name: str | None, lock: str | None) -> list[str]:
    """The doubts when this project lacks the stack, or has another lock of it."""
    if name is None:
        return []
    if name not in stack.names(project):
        return [f"this project has no stack {name!r}, whose lock could be compared"]
    if (here := lockfile.load(project, name).digest) != lock:
        other = f"it was built from another lock of {name} than this project's"
        return [f"{other}\nexpected {here}\ngot      {text.line(str(lock))}"]
    return []


def _ran_on(statement: Statement, hardware: str) -> bool:
    """Is that a whole word of the certificate's hardware? "H20" is no "H200"."""
    annotations = json.dumps(list((statement.resource("hardware").annotations or {}).values()), ensure_ascii=False)
    return re.search(rf"(?<!\w){re.escape(hardware)}(?!\w)", annotations, re.IGNORECASE) is not None
