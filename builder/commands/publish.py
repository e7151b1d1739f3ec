"""From a certificate to a registry: publish."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import project
from builder.base.text import word
from builder.commands import remote
from builder.commands.common import AsJson, OneStack, print_json, refuse
from builder.commands.remote import Insecure
from builder.image import build
from builder.image.buildx import BuildStep
from builder.lock import audit, lockfile
from builder.lock.lockfile import Lock
from builder.publish import keys, platforms, publish, timestamp
from builder.publish.reference import Repository

Registry = Annotated[str, typer.Option("--registry", metavar="HOST/PATH", help="The registry.", show_default=False)]
PrivateKey = Annotated[
    str,
    typer.Option(
        metavar="FILE", help="The private cosign key. Its password is in COSIGN_PASSWORD.", show_default=False
    ),
]
RunnerKey = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The public key of `certify --key`.", show_default=False)
]
TimestampServer = Annotated[
    str | None,
    typer.Option(metavar="URL", help="An RFC 3161 server that timestamps the image's signature.", show_default=False),
]


def publish_(
    name: OneStack,
    where: Registry,
    key: PrivateKey,
    runner_key: RunnerKey = None,
    timestamp_server: TimestampServer = None,
    insecure: Insecure = False,
    as_json: AsJson = False,
) -> None:
    """Push a certified image and its signed documents.

    These are the certificate, bill of materials and provenance. The tag is moved last.
    """
    repository = remote.repository(where, insecure)
    if timestamp_server is not None:
        try:
            timestamp.server(timestamp_server)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--timestamp-server") from error
    home = project.find()
    lock = lockfile.load(home, name)
    of_runner = keys.trusted(home, [runner_key] if runner_key else [])
    with home.holding(name) as scratch:
        refuse(name, audit.stale(lock))
        built = build.needed(home, lock)
        with console.Working(name) as work:
            publication = publish.publish(
                home, lock, built, repository, key, scratch, lambda what: work.step(BuildStep(0, 0, what)),
                next(iter(keys.write(of_runner, scratch)), None), timestamp_server,
            )  # fmt: skip
            (own := scratch / "platforms").mkdir()
            index = platforms.publish(
                home, lock, built, repository, key, own, lambda what: work.step(BuildStep(0, 0, what)), timestamp_server
            )
        absent = [] if index else platforms.missing(home, lock)
    if as_json:
        print_json(_json(name, repository, publication, index))
    else:
        _print(name, repository, publication, timestamped=timestamp_server is not None)
        _print_index(repository, index, absent)
        console.out.print(f"next: vetted verify {word(repository)}:{word(name)} --key cosign.pub")


def _json(
    name: str, repository: Repository, publication: publish.Publication, index: platforms.Index | None
) -> dict[str, object]:
    return {
        "stack": name, "registry": str(repository), "image": publication.image,
        "attestations": publication.attestations,
        "tags": list(publication.tags), "changed": publication.changed,
        "index": {"tag": index.tag, "digest": index.digest, "images": index.images} if index else None,
        "certificates": [json.loads(statement.to_json()) for statement in publication.certificates],
    }  # fmt: skip


def _print(name: str, repository: Repository, publication: publish.Publication, *, timestamped: bool) -> None:
    what = "published" if publication.changed else "is published already"
    console.out.print(f"{name}: {what}: {repository}:{name}\n  {repository}@{publication.image}")
    for statement in publication.certificates:
        expires = statement.predicate.expires
        console.out.print(f"  certificate, bill of materials and provenance signed; expires {expires}")
    console.note(
        f"signed with {'the key and a timestamp' if timestamped else 'the key alone'}: it is in no transparency log"
    )


def _print_index(repository: Repository, index: platforms.Index | None, absent: Sequence[Lock]) -> None:
    """`absent`: the locks for other platforms without an image."""
    if index:
        console.out.print(f"for {' and '.join(index.images)}: {repository}:{index.tag}\n  {repository}@{index.digest}")
        console.note("only the image for linux/amd64 is certified: the suite has run on no other processor")
    for lock in absent:
        console.note(
            f"no index: the image for {lock.platform.docker} was not built here; "
            f"vetted build {word(lock.name)} --platform {word(lock.platform.name)}, then publish again"
        )
