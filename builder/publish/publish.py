"""Publish a certified image, its certificate, its bill of materials and its provenance; then move its tags.

The order is the transaction. The image is pushed under its digest alone, then its statements, in one manifest; both are
fetched again and compared; only then do the tags move. Interrupted anywhere, a tag names what it named before, and the
same command finishes the work: nothing that is there already is pushed or signed a second time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from builder.base import errors, quantities
from builder.base.project import Project
from builder.base.text import word
from builder.certify import certificate, judgement
from builder.certify.certificate import Resource, Statement
from builder.certify.judgement import Terms
from builder.image import oci
from builder.image.build import Built
from builder.lock.lockfile import Lock
from builder.publish import attached, keys, provenance, registry, release, runner, signature, signing, verify
from builder.publish.reference import TAG, Repository
from builder.publish.signing import Envelope
from builder.publish.verify import SignedStatement

Progress = Callable[[str], None]
CERTIFICATE = attached.KINDS[certificate.PREDICATE]
LONGEST = 119  # characters of a stack's name: a date adds nine, and a tag may have 128


@dataclass(frozen=True)
class Publication:
    """A published image. `changed`: something was pushed, signed or moved; else all of it was there already."""

    image: str
    attestations: str  # the digest of their manifest
    tags: tuple[str, ...]
    certificates: tuple[Statement, ...]
    changed: bool


def valid(
    project: Project, lock: Lock, image: str, doubt: Callable[[Path, Statement], str | None] = lambda *_: None
) -> list[Statement]:
    """The certificates that hold today for exactly this image, suite and lock. Raises VettedError when none does.

    `doubt`: the doubt about the runner's signature of a certificate, where that is required.
    """
    terms = judgement.terms(project, lock)
    certificates, doubts = [], []
    for name, statement in certificate.of_stack(project, lock.name).items():
        against = judgement.doubts(statement, terms, image)
        path = project.stack_dir(lock.name) / "certificates" / f"{name}.json"
        if not against and (reason := doubt(path, statement)):
            against = [reason]
        doubts += [f"{name}: {reason}" for reason in against]
        if not against:
            certificates.append(statement)
    if not certificates:
        raise errors.VettedError(
            "\n".join([f"{lock.name} has no valid certificate of {image}", *doubts]),
            cause="image, suite or lock changed after it was certified; or it was never certified inside its image",
            next_step=f"vetted certify {word(lock.name)} --engine docker",
        )
    return certificates


def tag(stack: str) -> str:
    """The tag of a stack: its name. Raises BadInputError when that can be no tag."""
    if not TAG.fullmatch(stack) or len(stack) > LONGEST:
        raise errors.BadInputError(
            f"{stack!r} cannot be a tag: letters, digits and . _ - only, and {LONGEST} of them at most",
            next_step=f"rename lockfiles/{word(stack)}",
        )
    return stack


def publish(
    project: Project, lock: Lock, built: Built, repository: Repository, key: str, scratch: Path, progress: Progress,
    runner_key: Path | None = None, timestamp_server: str | None = None,
) -> Publication:  # fmt: skip
    """Push, attach, compare, and move the tags. Raises VettedError and its kinds; the tags are then as they were.

    `runner_key`: the public key of the machine that measured; it must have signed the certificates.
    `timestamp_server`: where cosign gets a timestamp of the image's signature.
    """
    image = built.image.manifest

    def doubt(path: Path, statement: Statement) -> str | None:
        if runner_key is None:
            return None
        return runner.doubt(path, statement, oci.checked(built.image.layout, image), runner_key, scratch)

    # The stack's own tag last: it is what people pull.
    names = (f"{tag(lock.name)}-{certificate.today():%Y%m%d}", lock.name)
    certificates = valid(project, lock, image, doubt)
    public = signing.public(key, scratch)
    keys.refuse_revoked(project, public)
    progress("asking the registry what is there")
    before = {name: registry.resolve(repository, name) for name in names}
    there = attached.fetch(repository, image)
    ours, _ = verify.signed(there, image, oci.checked(built.image.layout, image), public, scratch)

    progress("making and signing the statements")
    signatures = {statement.envelope.payload: statement.envelope for statement in ours}
    payloads = [
        *statements(project, lock, built, certificates, ours),
        _release(certificates[0].subject[0], names, ours, moves=set(before.values()) != {image}),
    ]
    envelopes = [signatures.get(payload) or signing.sign(payload, key, scratch) for payload in payloads]
    others = [envelope for envelope in there if envelope.payload not in signatures]  # of other keys: they stay
    layout = scratch / "attestations"
    # Ours first, and no more than `verify` reads: nobody who may push can crowd them out.
    attestations = attached.write(built.image, [*envelopes, *others][: attached.MOST], layout)

    changed = False
    if registry.manifest(repository, image) is None:
        progress(f"pushing the image, {quantities.size(built.image.size)}")
        _refuse_damaged(built)
        registry.push(repository, built.image.layout, image)
        changed = True
    if registry.resolve(repository, attached.tag(image)) != attestations:
        progress("attaching certificate, bill of materials and provenance")
        registry.push(repository, layout, attestations, attached.tag(image))
        changed = True

    progress("signing the image")
    changed |= signature.add(repository, image, key, public, scratch, timestamp_server)

    progress("comparing what is there now")
    _compare(repository, image, envelopes)
    progress(f"moving the tag {lock.name}")
    changed |= _move(repository, before, image)
    return Publication(image, attestations, names, tuple(certificates), changed)


def statements(
    project: Project, lock: Lock, built: Built, certificates: Sequence[Statement], ours: Sequence[SignedStatement]
) -> Iterator[bytes]:
    """The statements to attach, as bytes. Certificates of other hardware that are there stay while they hold."""
    from builder.publish import sbom  # takes as long to import as all the rest of the tool

    yield from (statement.to_json().encode() for statement in certificates)
    earned = {statement.key for statement in certificates}
    terms, image = judgement.terms(project, lock), built.image.manifest
    for statement in ours:
        if statement.kind == CERTIFICATE and _holds_elsewhere(statement, earned, terms, image):
            yield statement.envelope.payload
    subject = certificates[0].subject[0]
    # Reading the licences of a large image takes half a minute; the same image and lock have the same.
    bills = (statement.envelope.payload for statement in ours if _is_bill_of(statement, lock))
    yield next(bills, None) or _statement(subject, attached.BILL, sbom.make(lock, built.image))
    origin = provenance.make(project, lock, built)
    origins = (statement for statement in ours if statement.kind == attached.KINDS[attached.PROVENANCE])
    standing = (statement.envelope.payload for statement in origins if provenance.stands(statement.predicate, origin))
    yield next(standing, None) or _statement(subject, attached.PROVENANCE, origin)


def _holds_elsewhere(signed: SignedStatement, keys: set[tuple[str, str, str]], terms: Terms, image: str) -> bool:
    """Does a certificate hold, and is it of other hardware than these?"""
    try:
        statement = certificate.parse(signed.envelope.payload)
    except (ValueError, RecursionError):
        return False
    return statement.key not in keys and judgement.is_valid(statement, terms, image)


def _is_bill_of(statement: SignedStatement, lock: Lock) -> bool:
    from builder.publish import sbom

    try:
        return statement.kind == attached.KINDS[attached.BILL] and sbom.is_todays(statement.predicate, lock)
    except ValidationError:
        return False


def _release(subject: Resource, names: Sequence[str], ours: Sequence[SignedStatement], *, moves: bool) -> bytes:
    """The statement of tags and time; the one that is there stays while no tag moves."""
    there = {
        parsed: statement.envelope.payload
        for statement in ours
        if statement.kind == attached.KINDS[attached.RELEASE] and (parsed := release.read(statement.predicate))
    }
    newest = max(there, key=lambda earlier: earlier.issued, default=None)
    if newest and not moves and set(names) <= set(newest.tags):
        return there[newest]
    return _statement(subject, attached.RELEASE, release.make(names, there))


def _statement(subject: Resource, kind: str, predicate: dict[str, Any]) -> bytes:
    """An in-toto statement about the image."""
    statement = {
        "_type": certificate.STATEMENT,
        "subject": [subject.model_dump(mode="json", exclude_none=True)],
        "predicateType": kind,
        "predicate": predicate,
    }
    return (json.dumps(statement, indent=1, ensure_ascii=False) + "\n").encode()


def _refuse_damaged(built: Built) -> None:
    if broken := list(oci.damaged(built.image)):
        raise errors.BadInputError(
            "\n".join([f"{built.image.layout} is not what was certified", *broken]),
            cause="a file of it was changed, or the disk lost it",
            next_step=f"rm -r {word(built.image.layout)}, then build again",
        )


def _compare(repository: Repository, image: str, envelopes: Sequence[Envelope]) -> None:
    """Is all of it there, as it was pushed? Raises VettedError when somebody else replaced it."""
    there = attached.fetch(repository, image)
    if registry.manifest(repository, image) is None or any(envelope not in there for envelope in envelopes):
        raise errors.VettedError(
            f"what was pushed to {repository} is not what is there now; no tag was moved",
            cause="somebody else published the same image meanwhile, or collected garbage",
            next_step="run this again",
        )


def _move(repository: Repository, before: Mapping[str, str | None], image: str) -> bool:
    """Let the tags name the image; returns whether any had to move. Raises VettedError when somebody else moved one.

    A registry has no compare-and-swap: the tags are compared just before and just after, which is the best there is.
    """
    now = {name: registry.resolve(repository, name) for name in before}
    for name, digest in now.items():
        if digest not in (image, before[name]):
            raise _moved(repository, name, before[name], digest, "no tag was moved")
    for name in (name for name, digest in now.items() if digest != image):
        registry.tag(repository, image, name)
        if (after := registry.resolve(repository, name)) != image:
            raise _moved(repository, name, image, after, "it was moved to this image, and away again")
    return set(now.values()) != {image}


def _moved(
    repository: Repository, name: str, before: str | None, now: str | None, what: str
) -> errors.VettedError:  # fmt: skip
    return errors.VettedError(
        f"somebody else moved the tag {name} meanwhile; {what}\n"
        f"it named  {before or 'nothing'}\nit names  {now or 'nothing'}",
        cause="two people or pipelines publish the same stack",
        next_step=f"vetted verify {word(repository)}:{word(name)} shows theirs; to replace it by yours, run this again",
    )
