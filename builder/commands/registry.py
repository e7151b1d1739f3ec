"""Between here and a registry: publish, verify, use."""

from __future__ import annotations

import dataclasses
import errno
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import errors, project, text
from builder.base.project import Project
from builder.certify import certificate
from builder.certify import verdict as verdicts
from builder.certify.certificate import Statement
from builder.commands.common import AsJson, OneStack, print_json, refuse
from builder.image import build, daemon, oci
from builder.image.build import Built
from builder.image.buildx import Step
from builder.image.oci import DIGEST
from builder.intent import stack
from builder.lock import audit, lockfile
from builder.lock.lockfile import Lock
from builder.publish import airgap, dotenv, keys, publish, rebuild, refusal, registry, timestamp, verify
from builder.publish.rebuild import Rebuild
from builder.publish.reference import Reference, Repository, parse_reference, parse_repository
from builder.publish.verify import Verdict

Insecure = Annotated[
    bool, typer.Option("--insecure", help="Speak to the registry without TLS; one on this machine always is.")
]
PublicKeys = Annotated[
    list[Path] | None,
    typer.Option(
        "--key", metavar="FILE",
        help="A public key, cosign.pub; given more than once, any may have signed. Required without --rebuild.",
        show_default=False,
    ),
]  # fmt: skip
AllowRollback = Annotated[
    bool, typer.Option("--allow-rollback", help="The tag may name an older release than one that was seen here.")
]


def publish_(
    name: OneStack,
    where: Annotated[str, typer.Option("--registry", metavar="HOST/PATH", help="Where to.", show_default=False)],
    key: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="cosign's private key; its password is in COSIGN_PASSWORD.", show_default=False
        ),
    ],
    runner_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The public key that `certify --key` signed with.", show_default=False),
    ] = None,
    timestamp_server: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="An RFC 3161 server: the image's own signature gets a timestamp.", show_default=False
        ),
    ] = None,
    insecure: Insecure = False,
    as_json: AsJson = False,
) -> None:
    """Push a certified image with its certificate, bill of materials and provenance, signed; then move its tag."""
    repository = _repository(where, insecure)
    if timestamp_server is not None:
        try:
            timestamp.server(timestamp_server)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--timestamp-server") from error
    home = project.find()
    lock = lockfile.load(home, name)
    of_runner = keys.trusted(home, [runner_key])[0] if runner_key else None
    with home.holding(name) as scratch:
        refuse(name, audit.stale(lock))
        built = build.needed(home, lock)
        with console.Working(name) as work:
            done = publish.publish(
                home, lock, built, repository, key, scratch, lambda what: work.step(Step(0, 0, what)), of_runner,
                timestamp_server,
            )  # fmt: skip
    if as_json:
        print_json(
            {
                "stack": name, "registry": str(repository), "image": done.image, "attestations": done.attestations,
                "tags": list(done.tags), "changed": done.changed,
                "certificates": [json.loads(one.to_json()) for one in done.certificates],
            }
        )  # fmt: skip
        return
    what = "published" if done.changed else "is published already"
    console.out.print(f"{name}: {what}: {repository}:{name}\n  {repository}@{done.image}", markup=False)
    for one in done.certificates:
        console.out.print(f"  certificate, bill of materials and provenance signed; expires {one.predicate.expires}")
    with_ = "the key and a timestamp" if timestamp_server else "the key alone"
    console.note(f"signed with {with_}: no transparency log knows of it")
    console.out.print(f"next: vetted verify {repository}:{name} --key cosign.pub", markup=False)


def verify_(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="REF",
            help="HOST/PATH:TAG or HOST/PATH@sha256:…; with --offline a carried folder, or an OCI layout.",
            show_default=False,
        ),
    ],
    key: PublicKeys = None,
    hardware: Annotated[
        str | None, typer.Option(help="It must be certified on this, such as H200.", show_default=False)
    ] = None,
    rebuild_: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="Build it from this project's lock too and compare the digests; without --key, only that."
        ),
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="REF is a folder; no network is used.")] = False,
    allow_rollback: AllowRollback = False,
    insecure: Insecure = False,
    as_json: AsJson = False,
) -> None:
    """Judge a published image: signatures, release, subject, lock, suite, expiry, advisories. Any doubt ends with 1."""
    if not key and not rebuild_:
        raise typer.BadParameter("it is required, or --rebuild", param_hint="--key")
    if hardware and not key:
        raise typer.BadParameter("certificates are judged with --key", param_hint="--hardware")
    home = project.find()
    public = keys.trusted(home, key or [])
    verdict: Verdict | None = None
    rebuilt: Rebuild | None = None
    with _temporary() as scratch:
        if offline:
            folder, image = _folder(reference)
            layout, around = airgap.layout(folder)
            if public:
                verdict = verify.local(home, layout, image, public, scratch, hardware)
            if verdict and around is not None:
                doubts = min((airgap.check(around, one, scratch) for one in public), key=len)
                verdict = dataclasses.replace(verdict, doubts=(*verdict.doubts, *doubts))
            if rebuild_:
                rebuilt = rebuild.local(home, layout, verdict.image if verdict else image, _anew(home))
        else:
            if Path(reference).is_dir():
                raise typer.BadParameter(f"{reference} is a folder: add --offline", param_hint="REF")
            try:
                wanted = parse_reference(reference, insecure=insecure)
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint="REF") from error
            if public:
                with console.spinner(f"asking {wanted.repository.host}"):
                    verdict = verify.remote(home, wanted, public, scratch, hardware, allow_rollback=allow_rollback)
            if rebuild_:
                # The digest that was judged: the tag may have moved since.
                rebuilt = rebuild.remote(home, wanted, verdict.image if verdict else None, _anew(home), scratch)
    _say(reference, verdict, rebuilt, as_json=as_json)


def _folder(reference: str) -> tuple[Path, str | None]:
    """The folder that FOLDER or FOLDER@DIGEST names, and the digest."""
    folder, _, image = (reference, "", "") if Path(reference).is_dir() else reference.partition("@")
    if image and not DIGEST.fullmatch(image):
        raise typer.BadParameter(f"{image!r} is not a digest", param_hint="REF")
    return Path(folder).absolute(), image or None


def _anew(home: Project) -> rebuild.Builder:
    """Builds the image of a lock without anything that an earlier build left."""

    def build_(lock: Lock, scratch: Path) -> oci.Image:
        refuse(lock.name, audit.stale(lock))
        with console.Working(lock.name) as work:
            return build.anew(home, lock, scratch, work.step)

    return build_


def _say(reference: str, judged_: Verdict | None, rebuilt: Rebuild | None, *, as_json: bool) -> None:
    """Print what came of it. A doubt ends with 1."""
    if judged_ is None:
        assert rebuilt is not None
        verdict, good = rebuilt.alone(reference), rebuilt.identical
    else:
        verdict = rebuilt.added_to(judged_) if rebuilt else judged_
        good = verdict.good
    if as_json:
        more = (
            {"rebuilt": rebuilt.digest, "identical": rebuilt.identical, "signed": judged_ is not None}
            if rebuilt
            else {}
        )
        print_json({**_as_json(verdict), "good": good, **more})
    elif judged_ is None:
        *said, _ = lines(verdict)
        last = ("identical, and not certified", "green") if good else ("not identical", "red")
        _print([*said, last])
    else:
        _print(lines(verdict))
    if not good:
        raise typer.Exit(1)


@contextmanager
def _temporary() -> Iterator[Path]:
    """A temporary folder; that there is no room for it is said as such."""
    try:
        with tempfile.TemporaryDirectory(prefix="vetted-") as temporary:
            yield Path(temporary)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise refusal.disk_full(str(Path(tempfile.gettempdir(), "vetted-"))) from error
        raise


def _as_json(verdict: Verdict) -> dict[str, object]:
    return {
        "reference": verdict.reference, "image": verdict.image, "good": verdict.good, "stack": verdict.stack,
        "lock": verdict.lock, "doubts": list(verdict.doubts), "notes": list(verdict.notes),
        "certificates": [
            {
                "hardware": one.hardware, "issued": str(one.statement.predicate.issued),
                "expires": str(one.statement.predicate.expires), "passed": one.statement.predicate.passedTests,
                "not_run": one.statement.predicate.notRun, "doubts": list(one.doubts),
            }
            for one in verdict.certificates
        ],
    }  # fmt: skip


def _print(said: Iterable[tuple[str, str]]) -> None:
    for line, style in said:
        console.out.print(line, style=style, markup=False)


def lines(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """What a person reads, with its colour. All of it comes from a registry, so that none of it may be a command."""
    yield text.line(verdict.reference), "bold"
    for what, value in (("image", verdict.image), ("stack", verdict.stack), ("lock", verdict.lock)):
        if value:
            yield text.line(f"  {what:<9} {value}"), ""
    for one in verdict.certificates:
        predicate = one.statement.predicate
        probes = f"{len(predicate.passedTests)} of {len(predicate.probes)} probes passed"
        dates = f"issued {predicate.issued}, expires {predicate.expires}"
        yield text.line(f"  certified on {one.hardware}: {probes}; {dates}"), ""
        yield from _doubts(one.doubts)
    yield from _doubts(verdict.doubts)
    for note in verdict.notes:
        yield text.line(f"  {note}"), ""
    yield ("verified", "green") if verdict.good else ("not verified", "red")


def _doubts(doubts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for doubt in doubts:
        first, *rest = doubt.splitlines() or [""]
        yield text.line(f"  doubt: {first}"), "red"
        yield from ((text.line(f"         {line}"), "red") for line in rest)


def use_(
    name: Annotated[
        str | None, typer.Argument(metavar="[STACK]", help="Default: the newest CPU stack.", show_default=False)
    ] = None,
    where: Annotated[
        str | None, typer.Option("--registry", metavar="HOST/PATH", help="Default: built here.", show_default=False)
    ] = None,
    key: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="A public key, or several: verify what the registry has first.", show_default=False
        ),
    ] = None,
    allow_rollback: AllowRollback = False,
    insecure: Insecure = False,
    as_json: AsJson = False,
) -> None:
    """Choose the image that compose.yaml runs: written to .env, pinned by its digest."""
    repository = _repository(where, insecure) if where else None
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
    what = "written to" if changed else "stands already in"
    console.out.print(f"{chosen}: {image}\n  {what} {home.relative(dotenv.path(home))}", markup=False)
    if repository and not public:
        console.note("not verified: add --key cosign.pub, or: vetted verify " + image + " --key cosign.pub")


def _cpu_stack(home: Project) -> str:
    names = [one for one in stack.names(home) if stack.load(home, one).device == "cpu"]
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
            doubts = [*other, *verdict.doubts, *(doubt for one in verdict.certificates for doubt in one.doubts)]
            said = (text.line(line) for doubt in doubts for line in doubt.splitlines())
            raise errors.VettedError(
                "\n".join([f"{repository}:{name} is in doubt; .env is as it was", *said]),
                next_step=f"vetted verify {where} --key cosign.pub",
            )
        statements = [one.statement for one in verdict.certificates if not one.doubts]
    return f"{repository}@{image}", statements


def _load(built: Built) -> None:
    """What was built here is found by Docker only when it is loaded."""
    try:
        daemon.docker()
    except errors.MissingToolError:
        console.note("no Docker engine answers: the image is pinned, and loaded by running this again when one does")
        return
    with console.spinner("loading the image into Docker"):
        daemon.load(built.image, built.reference)


def _repository(where: str, insecure: bool) -> Repository:
    try:
        return parse_repository(where, insecure=insecure)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--registry") from error
