"""From an image to a training run: use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import errors, project, text
from builder.base.project import Project
from builder.certify import certificate
from builder.certify import verdict as verdicts
from builder.certify.certificate import Statement
from builder.commands import remote
from builder.commands.common import AsJson, print_json
from builder.commands.remote import AllowRollback, Insecure
from builder.image import build, daemon
from builder.image.build import Built
from builder.intent import stack
from builder.lock import lockfile
from builder.publish import dotenv, keys, publish, registry, verify
from builder.publish.reference import Reference, Repository


def use_(
    name: Annotated[
        str | None, typer.Argument(metavar="[STACK]", help="Default: the newest CPU stack.", show_default=False)
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--registry", metavar="HOST/PATH", help="Default: the image that was built here.", show_default=False
        ),
    ] = None,
    key: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A public key. Verify the image first. May be repeated.", show_default=False),
    ] = None,
    allow_rollback: AllowRollback = False,
    insecure: Insecure = False,
    as_json: AsJson = False,
) -> None:
    """Choose the image that compose.yaml runs.

    It is written to .env, pinned by its digest.
    """
    repository = remote.repository(where, insecure) if where else None
    if key and not repository:
        raise typer.BadParameter("what is built here has no signature: --key goes with --registry", param_hint="--key")
    home = project.find()
    public = keys.trusted(home, key or [])
    chosen = name or _cpu_stack(home)
    lock = lockfile.load(home, chosen)
    with home.holding(chosen) as scratch:
        statements: Iterable[Statement] = certificate.of_stack(home, chosen).values()
        if repository:
            image, published = _published(home, chosen, repository, public, scratch, allow_rollback)
            statements = published if public else statements
        else:
            built = build.needed(home, lock)
            image = f"{built.reference.partition(':')[0]}@{built.image.manifest}"
            _load(built)
        certificates = verdicts.folder(home, chosen)
        verdicts.write(home, lock, image.rpartition("@")[2], statements, certificates, scratch)
        changed = dotenv.pin(home, lock.stack, chosen, image, certificates, scratch)
    if as_json:
        print_json({"stack": chosen, "image": image, "file": str(dotenv.path(home)), "changed": changed})
        return
    what = "written to" if changed else "already in"
    console.out.print(f"{chosen}: {image}\n  {what} {home.relative(dotenv.path(home))}")
    if repository and not public:
        console.note("not verified: add --key cosign.pub, or: vetted verify " + image + " --key cosign.pub")


def _cpu_stack(home: Project) -> str:
    names = [name for name in stack.shipped(home) if stack.load(home, name).device == "cpu"]
    if not names:
        raise errors.BadInputError("the project has no stack for the CPU", next_step="vetted use STACK; vetted list")
    return names[-1]


def _published(
    home: Project, name: str, repository: Repository, public: Sequence[Path], scratch: Path,
    allow_rollback: bool,
) -> tuple[str, Sequence[Statement]]:  # fmt: skip
    """The image that the stack's tag names in a registry; verified, and with its certificates, when there is a key."""
    where = Reference(repository, publish.tag(name), None)
    verdict = verify.remote(home, where, public, scratch, allow_rollback=allow_rollback) if public else None
    image = verdict.image if verdict else registry.resolve(repository, publish.tag(name))
    if not image:
        raise errors.VettedError(
            f"there is no {repository}:{name}",
            cause="the stack was never published there",
            next_step=f"vetted publish {name} --registry {repository} --key cosign.key",
        )
    statements: Sequence[Statement] = ()
    if verdict:
        other = [] if verdict.stack in (None, name) else [f"it is an image of {verdict.stack}"]
        if other or not verdict.good:
            doubts = [
                *other,
                *verdict.doubts,
                *(doubt for judgement in verdict.certificates for doubt in judgement.doubts),
            ]
            reasons = (text.line(line) for doubt in doubts for line in doubt.splitlines())
            raise errors.VettedError(
                "\n".join([f"{repository}:{name} is in doubt; .env is unchanged", *reasons]),
                next_step=f"vetted verify {where} --key cosign.pub",
            )
        statements = [judgement.statement for judgement in verdict.certificates if not judgement.doubts]
    return f"{repository}@{image}", statements


def _load(built: Built) -> None:
    """Docker finds an image that was built here only when it is loaded."""
    try:
        daemon.docker()
    except errors.MissingToolError:
        console.note("no Docker engine answers: the image is pinned; run this again to load it when one does")
        return
    with console.spinner("loading the image into Docker"):
        daemon.load(built.image, built.reference)
