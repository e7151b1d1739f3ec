"""Publishing: a certified image, its certificate, its bill of materials and its provenance, and last of all its name.

The order is the transaction. The image goes up under its digest alone, then what is attached to it, in one manifest;
both are looked at again; only then do the tags move. Broken off anywhere, a tag names what it named before, and the
same command finishes the work: what is up already is neither pushed nor signed a second time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.base import errors
from builder.base.project import Project
from builder.certify import certificate, judgement
from builder.certify.certificate import Resource, Statement
from builder.certify.judgement import Terms
from builder.image import oci
from builder.image.build import Built
from builder.lock.lockfile import Lock
from builder.publish import attached, keys, provenance, registry, release, runner, signature, signing, verify
from builder.publish.reference import TAG, Repository
from builder.publish.signing import Envelope
from builder.publish.verify import Signed

Report = Callable[[str], None]
LONGEST = 119  # of a stack's name: its tag of the day has nine characters more, and a tag may have 128


@dataclass(frozen=True)
class Published:
    """`changed`: something was pushed or moved; else all of it was there already."""

    image: str
    attestations: str  # the digest of the manifest that holds them
    tags: tuple[str, ...]
    certificates: tuple[Statement, ...]
    changed: bool


def valid(
    project: Project, lock: Lock, image: str, signed: Callable[[Path, Statement], str | None] = lambda *_: None
) -> list[Statement]:
    """The certificates that hold today for exactly this image, suite and lock. Raises VettedError when none does.

    `signed`: what speaks against the signature of the machine that measured one, where it is asked for.
    """
    terms = judgement.terms(project, lock)
    found, doubts = [], []
    for name, statement in certificate.of_stack(project, lock.name).items():
        against = judgement.against(statement, terms, image)
        path = project.stack_dir(lock.name) / "certificates" / f"{name}.json"
        if not against and (why := signed(path, statement)):
            against = [why]
        doubts += [f"{name}: {one}" for one in against]
        if not against:
            found.append(statement)
    if not found:
        raise errors.VettedError(
            "\n".join([f"{lock.name} has no valid certificate of {image}", *doubts]),
            cause="image, suite or lock changed after it was certified; or it was never certified inside its image",
            next_step=f"vetted certify {lock.name} --engine docker",
        )
    return found


def tag(stack: str) -> str:
    """The tag of a stack. Raises BadInputError when it can have none."""
    if not TAG.fullmatch(stack) or len(stack) > LONGEST:
        raise errors.BadInputError(
            f"{stack!r} cannot be a tag: letters, digits and . _ - only, and {LONGEST} of them at most",
            next_step=f"rename lockfiles/{stack}",
        )
    return stack


def publish(
    project: Project, lock: Lock, built: Built, repository: Repository, key: str, scratch: Path, report: Report,
    runner_key: Path | None = None, timestamp_server: str | None = None,
) -> Published:  # fmt: skip
    """Push, attach, look again, and move the tags. Raises VettedError and its kinds; the tags are then as they were.

    `runner_key`: the public key of the machine that measured, which must have signed the certificates.
    `timestamp_server`: where cosign gets a timestamp of the image's signature.
    """
    image = built.image.manifest

    def signed(path: Path, statement: Statement) -> str | None:
        if runner_key is None:
            return None
        return runner.doubt(path, statement, oci.checked(built.image.layout, image), runner_key, scratch)

    # The stack's own tag last: it is what people pull.
    names = (f"{tag(lock.name)}-{certificate.today():%Y%m%d}", lock.name)
    certificates = valid(project, lock, image, signed)
    public = signing.public(key, scratch)
    keys.refuse_revoked(project, public)
    report("asking the registry what is there")
    before = {name: registry.resolve(repository, name) for name in names}
    there = attached.fetch(repository, image)
    ours, _ = verify.signed(there, image, oci.checked(built.image.layout, image), public, scratch)

    report("making and signing what is to be attached")
    signatures = {one.envelope.payload: one.envelope for one in ours}
    said = [
        *statements(project, lock, built, certificates, ours),
        _release(certificates[0].subject[0], names, ours, moves=set(before.values()) != {image}),
    ]
    wanted = [signatures.get(statement) or signing.sign(statement, key, scratch) for statement in said]
    others = [one for one in there if one.payload not in signatures]  # of other keys: theirs to take away
    layout = scratch / "attestations"
    # Ours first, and no more than `verify` looks at: nobody who may push can crowd them out.
    attestations = attached.write(built.image, [*wanted, *others][: attached.MOST], layout)

    changed = False
    if registry.manifest(repository, image) is None:
        report(f"pushing the image, {built.image.size / 1e6:.0f} MB")
        _refuse_damaged(built)
        registry.push(repository, built.image.layout, image)
        changed = True
    if registry.resolve(repository, attached.tag(image)) != attestations:
        report("attaching certificate, bill of materials and provenance")
        registry.push(repository, layout, attestations, attached.tag(image))
        changed = True

    report("signing the image")
    changed |= signature.add(repository, image, key, public, scratch, timestamp_server)

    report("looking at what is there now")
    _look_again(repository, image, wanted)
    report(f"moving the tag {lock.name}")
    changed |= _move(repository, before, image)
    return Published(image, attestations, names, tuple(certificates), changed)


def statements(
    project: Project, lock: Lock, built: Built, certificates: Sequence[Statement], ours: Sequence[Signed]
) -> Iterator[bytes]:
    """All that is to be attached. Of what is there, certificates of other hardware stay while they hold."""
    from builder.publish import sbom  # takes as long to import as all the rest of the tool

    yield from (one.to_json().encode() for one in certificates)
    earned = {one.key for one in certificates}
    terms, image = judgement.terms(project, lock), built.image.manifest
    for one in ours:
        if one.kind == attached.KINDS[certificate.PREDICATE] and _holds_elsewhere(one, earned, terms, image):
            yield one.envelope.payload
    subject = certificates[0].subject[0]
    # To read the licences takes half a minute for a large image; of the same image and lock they are the same.
    bills = (one.envelope.payload for one in ours if _is_bill_of(one, lock))
    yield next(bills, None) or _statement(subject, attached.BILL, sbom.make(lock, built.image))
    made = provenance.make(project, lock, built)
    origins = (one for one in ours if one.kind == attached.KINDS[attached.PROVENANCE])
    standing = (one.envelope.payload for one in origins if provenance.stands(one.predicate, made))
    yield next(standing, None) or _statement(subject, attached.PROVENANCE, made)


def _holds_elsewhere(one: Signed, keys: set[tuple[str, str, str]], terms: Terms, image: str) -> bool:
    try:
        statement = certificate.parse(one.envelope.payload)
    except (ValueError, RecursionError):
        return False
    return statement.key not in keys and judgement.holds(statement, terms, image)


def _is_bill_of(one: Signed, lock: Lock) -> bool:
    from builder.publish import sbom

    try:
        return one.kind == attached.KINDS[attached.BILL] and sbom.is_todays(one.predicate, lock)
    except (KeyError, TypeError):
        return False


def _release(subject: Resource, names: Sequence[str], ours: Sequence[Signed], *, moves: bool) -> bytes:
    """Under which tags it is published, and when; the statement that is there stands while no tag moves."""
    there = {
        said: one.envelope.payload
        for one in ours
        if one.kind == attached.KINDS[attached.RELEASE] and (said := release.read(one.predicate))
    }
    newest = max(there, key=lambda one: one.issued, default=None)
    if newest and not moves and set(names) <= set(newest.tags):
        return there[newest]
    return _statement(subject, attached.RELEASE, release.make(names, there))


def _statement(subject: Resource, kind: str, predicate: dict[str, Any]) -> bytes:
    """An in-toto statement about the image."""
    said = {
        "_type": certificate.STATEMENT,
        "subject": [subject.model_dump(mode="json", exclude_none=True)],
        "predicateType": kind,
        "predicate": predicate,
    }
    return (json.dumps(said, indent=1, ensure_ascii=False) + "\n").encode()


def _refuse_damaged(built: Built) -> None:
    if broken := list(oci.damaged(built.image)):
        raise errors.BadInputError(
            "\n".join([f"{built.image.layout} is not what was certified", *broken]),
            cause="a file of it was changed, or the disk lost it",
            next_step=f"rm -r {built.image.layout}, then build again",
        )


def _look_again(repository: Repository, image: str, wanted: Sequence[Envelope]) -> None:
    """Is all of it there, as it was sent? Raises VettedError when somebody else was quicker."""
    there = attached.fetch(repository, image)
    if registry.manifest(repository, image) is None or any(one not in there for one in wanted):
        raise errors.VettedError(
            f"what was pushed to {repository} is not what is there now; no tag was moved",
            cause="somebody else published the same image in between, or collected garbage",
            next_step="run this again",
        )


def _move(repository: Repository, before: Mapping[str, str | None], image: str) -> bool:
    """Let the tags name the image; whether any had to move. Raises VettedError when somebody else moved one.

    A registry has no compare-and-swap: they are looked at just before and just after, and nothing closer can be had.
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
        f"the tag {name} was moved by somebody else in between; {what}\n"
        f"it named  {before or 'nothing'}\nit names  {now or 'nothing'}",
        cause="two people or pipelines publish the same stack",
        next_step=f"look at {repository}:{name} with `vetted verify`; if yours shall be the newer one, run this again",
    )
