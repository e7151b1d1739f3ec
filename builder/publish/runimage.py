"""The image of a training run: the certificates that lie beside the run, judged by today's terms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from builder.base import text
from builder.base.project import Project
from builder.base.text import word
from builder.certify import certificate, judgement
from builder.certify.certificate import Statement
from builder.intent import stack
from builder.lock import lockfile
from builder.publish.runstatement import Predicate


def notes(project: Project, folder: Path, predicate: Predicate) -> Iterator[str]:
    """What is known of the image. Only its name and digest are the run's; the rest is looked up here."""
    if predicate.image is None:
        yield "it ran in no image whose digest is known: what was installed is only listed"
        return
    name, digest = predicate.image
    beside = sorted((folder / "certificates").glob("*.json"))
    for statement in map(certificate.read, beside):
        yield from _certificate(project, statement, digest)
    if not beside:
        image = f"{name}@{digest}"
        yield f"no certificate of its image lies beside it\nnext: vetted verify {word(image)} --key cosign.pub"


def _certificate(project: Project, statement: Statement, digest: str) -> Iterator[str]:
    lock = statement.resource("lock").digest
    for name in stack.names(project):
        locked = lockfile.load(project, name)
        if lock and locked.digest == f"sha256:{lock.sha256}":
            doubts = judgement.doubts(statement, judgement.terms(project, locked), digest)
            standing = f"does not hold: {text.line(doubts[0].splitlines()[0])}" if doubts else "holds"
            hardware = text.line(statement.hardware)
            yield f"the certificate of its image, {name} on {hardware}, {standing}"
            return
    yield "the certificate of its image is of a lock that this project has not"
