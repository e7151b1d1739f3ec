"""From an image to a training run: use."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import errors, project, text
from builder.base.project import Project
from builder.base.text import word
from builder.certify import certificate
from builder.certify import choice as choices
from builder.certify import verdict as verdicts
from builder.certify.certificate import Statement
from builder.certify.choice import Choice
from builder.commands import remote, usage
from builder.commands.common import AsJson, print_json
from builder.commands.remote import AllowRollback, Insecure
from builder.image import build, daemon
from builder.image.build import Built
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from builder.publish import dotenv, keys, publish, registry, standalone, verify
from builder.publish.keys import PublicKey
from builder.publish.reference import Reference, Repository
from builder.publish.standalone import Written

StackOrDefault = Annotated[
    str | None, typer.Argument(metavar="[STACK]", help="Default: the one for this machine.", show_default=False)
]
Registry = Annotated[
    str | None,
    typer.Option("--registry", metavar="HOST/PATH", help="Default: the image that was built here.", show_default=False),
]
PublicKeys = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="A public key. Verify the image first. May be repeated.", show_default=False),
]
Network = Annotated[
    bool | None,
    typer.Option(
        "--network/--no-network", help="Let train reach the network: the Hub, W&B. Stays until it is taken back."
    ),
]
Server = Annotated[
    bool | None, typer.Option("--server/--no-server", help="Start vLLM as a server beside train, on separate GPUs.")
]
Into = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", exists=True, file_okay=False, resolve_path=True, show_default=False,
        help="Write a standalone compose.yaml to this folder, such as your own repository.",
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Request:
    """Where the image comes from, and where it is written: `into` a folder, or to .env."""

    repository: Repository | None
    public: Sequence[PublicKey]
    into: Path | None
    overlays: dotenv.Overlays
    allow_rollback: bool


@dataclass(frozen=True)
class Chosen:
    """The image that was chosen, by its digest, and the file that names it now."""

    image: str
    file: Path
    changed: bool


def use_(
    context: typer.Context,
    name: StackOrDefault = None,
    where: Registry = None,
    key: PublicKeys = None,
    network: Network = None,
    server: Server = None,
    into: Into = None,
    allow_rollback: AllowRollback = False,
    insecure: Insecure = False,
    as_json: AsJson = False,
) -> None:
    """Choose the image that compose.yaml runs.

    It is written to .env, pinned by its digest; with --into to your own compose.yaml.
    """
    repository = remote.repository(where, insecure) if where else None
    if key and not repository:
        raise typer.BadParameter("what is built here has no signature: --key goes with --registry", param_hint="--key")
    if not repository:
        usage.refuse(context, ("insecure",), "goes with --registry")
    if not key:
        usage.refuse(context, ("allow_rollback",), "is about a release, which is checked with --key")
    home = project.find()
    overlays = dotenv.Overlays(network, server)
    earlier = standalone.read(into) if into else None  # nothing is loaded for a folder that cannot be written
    if into and earlier and not (name or where):
        _keep(home, into, earlier, overlays, as_json)
        return
    if not (into or name or where) and overlays != dotenv.Overlays() and (current := dotenv.chosen(home)):
        _overlay(home, current, overlays, as_json)
        return
    request = Request(repository, keys.trusted(home, key or []), into, overlays, allow_rollback)
    choice = Choice(name, "") if name else choices.choose(home)
    lock = lockfile.load(home, choice.name)
    chosen = _pin(home, lock, request)
    if as_json:
        print_json({
            "stack": choice.name, "image": chosen.image, "file": str(chosen.file), "changed": chosen.changed
        })  # fmt: skip
    else:
        _print(home, lock, choice, request, chosen)


def _pin(home: Project, lock: Lock, request: Request) -> Chosen:
    """Get the image and its certificates, and write it where it was asked for."""
    name, repository = lock.name, request.repository
    with home.holding(name) as scratch:
        public = keys.write(request.public, scratch)
        statements: Iterable[Statement] = certificate.of_stack(home, name).values()
        if repository:
            image, published = _published(home, name, repository, public, scratch, request.allow_rollback)
            statements = published if public else statements
        else:
            built = build.needed(home, lock)
            image = f"{built.reference.partition(':')[0]}@{built.image.manifest}"
            _load(built)
        if into := request.into:
            source = standalone.Source(image, repository, public)
            changed = standalone.put(home, lock, source, statements, request.overlays, into, scratch)
            return Chosen(image, into / standalone.FILE, changed)
        certificates = verdicts.folder(home, name)
        verdicts.write(home, lock, image.rpartition("@")[2], statements, certificates, scratch)
        changed = dotenv.pin(home, lock.stack, name, image, certificates, scratch, request.overlays)
        return Chosen(image, dotenv.path(home), changed)


def _print(home: Project, lock: Lock, choice: Choice, request: Request, chosen: Chosen) -> None:
    if choice.reason:
        console.out.print(choice.reason)
    what = "written to" if chosen.changed else "already in"
    console.out.print(f"{choice.name}: {chosen.image}\n  {what} {home.relative(chosen.file)}")
    day = datetime.datetime.fromtimestamp(lock.epoch, datetime.UTC).date()
    console.out.print(f"  `docker images` dates it {day}, whenever it was built: so two builds give the same bytes")
    if request.into:
        _next(request.into, request.repository is not None)
    if daemon.lacks_compose():
        console.note(
            "docker has no compose plugin here: `docker compose run` ends with an unknown flag\n"
            "next: sudo scripts/install-engine (Debian 12), or Docker's own package docker-compose-plugin"
        )
    if request.repository and not request.public:
        console.note(f"not verified: add --key cosign.pub, or: vetted verify {word(chosen.image)} --key cosign.pub")


def _next(folder: Path, published: bool) -> None:
    """The next steps after a user's own compose.yaml was written."""
    console.out.print(f"  {standalone.FOLDER}/ has the certificates, runs/ will have the results")
    committed = f"{standalone.FILE} {standalone.FOLDER} {standalone.CACHE} runs"
    console.out.print(f"next: cd {word(folder)}; git add {committed}; docker compose run --rm train")
    if standalone.committed_by_accident(folder):
        console.note(f".env is for this machine alone: echo .env >> {word(folder)}/.gitignore")
    if not published:
        console.note("the image is only on this machine: for others, vetted publish, and then use with --registry")


def _overlay(home: Project, name: str, overlays: dotenv.Overlays, as_json: bool) -> None:
    """Only change the overlays: the image stays."""
    lock = lockfile.load(home, name)
    with home.holding(name) as scratch:
        changed = dotenv.overlay(home, lock.stack.device, overlays, scratch)
    if as_json:
        print_json({"stack": name, "file": str(dotenv.path(home)), "changed": changed})
        return
    console.out.print(f"{name}: {'written to' if changed else 'already in'} {home.relative(dotenv.path(home))}")


def _keep(home: Project, into: Path, written: Written, overlays: dotenv.Overlays, as_json: bool) -> None:
    """Write a user's own compose.yaml again, with other overlays or unchanged: the image stays."""
    lock, file, source = lockfile.load(home, written.stack), into / standalone.FILE, written.source
    with home.holding(written.stack) as scratch:
        changed = standalone.put(home, lock, source, None, overlays, into, scratch)
    if as_json:
        print_json({"stack": written.stack, "image": source.image, "file": str(file), "changed": changed})
        return
    what = "written to" if changed else "already in"
    console.out.print(f"{written.stack}: {source.image}\n  {what} {home.relative(file)}")


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
            next_step=f"vetted publish {word(name)} --registry {word(repository)} --key cosign.key",
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
                next_step=f"vetted verify {word(where)} --key cosign.pub",
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
