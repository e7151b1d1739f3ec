"""From a registry or a carried folder to a verdict: verify."""

from __future__ import annotations

import errno
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import errors, project
from builder.base.project import Project
from builder.base.text import word
from builder.commands import readout, usage
from builder.commands.common import AsJson, print_json, refuse
from builder.commands.remote import AllowRollback, Insecure
from builder.image import build, oci
from builder.image.oci import DIGEST
from builder.lock import audit
from builder.lock.lockfile import Lock
from builder.publish import airgap, keys, rebuild, refusal, training, verify
from builder.publish.policy import policyfile, rule
from builder.publish.policy.rule import Rule
from builder.publish.rebuild import Rebuild
from builder.publish.reference import Reference, parse_reference
from builder.publish.training import RunVerdict
from builder.publish.verify import Verdict

PublicKeys = Annotated[
    list[Path] | None,
    typer.Option(
        "--key", metavar="FILE",
        help="A public key such as cosign.pub; with several, any may have signed. "
        "Required without --policy or --rebuild.",
        show_default=False,
    ),
]  # fmt: skip


OF_IMAGES = ("key", "hardware", "policy", "rebuild_", "allow_rollback", "insecure")


def verify_(
    context: typer.Context,
    reference: Annotated[
        str,
        typer.Argument(
            metavar="REF",
            help="HOST/PATH:TAG or HOST/PATH@sha256:…; with --offline a carried folder or an OCI layout; or a training "
            "run, by a path that begins with runs/, /, ./ or ../.",
            show_default=False,
        ),
    ],
    key: PublicKeys = None,
    hardware: Annotated[
        str | None, typer.Option(help="Require a certificate for this, such as H200.", show_default=False)
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="May it run? The keys and all conditions are those of this policy.", show_default=False
        ),
    ] = None,
    rebuild_: Annotated[
        bool,
        typer.Option("--rebuild", help="Build it from this project's lock and compare the digests."),
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="REF is a folder. No downloads.")] = False,
    allow_rollback: AllowRollback = False,
    insecure: Insecure = False,
    as_json: AsJson = False,
) -> None:
    """Verify a published image, or a training run.

    Of an image, signatures, release, subject, lock, suite, expiry and advisories are checked; of a run, that its
    certificate is about these files and follows from the numbers of every step. Any doubt or alarm exits with 1.
    """
    if not offline and training.is_path(reference):
        # Nothing of a run is signed: what asks for more than its own numbers is refused.
        home, run = project.find(), _run(reference)
        usage.refuse(context, OF_IMAGES, f"is about images, and {reference} is the folder of a training run")
        _report_run(training.judge(home, run), as_json=as_json)
        return
    if policy and (key or hardware):
        raise typer.BadParameter("the policy names keys and hardware", param_hint="--key" if key else "--hardware")
    image = None if offline else _reference(reference, insecure)
    if not key and not policy and not rebuild_:
        raise typer.BadParameter("it is required, or --policy or --rebuild", param_hint="--key")
    if hardware is not None and not re.search(r"[A-Za-z0-9]", hardware):
        raise typer.BadParameter(f"{hardware!r} is no hardware, such as H200", param_hint="--hardware")
    if hardware and not key:
        raise typer.BadParameter("certificates are judged with --key", param_hint="--hardware")
    if offline:
        usage.refuse(context, ("allow_rollback", "insecure"), "is about a registry, and --offline asks none")
    if not key and not policy:
        usage.refuse(context, ("allow_rollback",), "is about a release, which is checked with --key or --policy")
    home = project.find()
    with _temporary() as scratch:
        accepted = _rule(home, policy, scratch) if policy else None
        named = accepted.keys if accepted else key or []
        public = keys.write(keys.trusted(home, named), scratch)
        checks = Checks(named, public, hardware, rebuild_, accepted)
        if image is None:
            verdict, rebuilt = _carried(home, reference, checks, scratch)
        else:
            verdict, rebuilt = _published(home, image, checks, scratch, allow_rollback)
    _report(reference, verdict, rebuilt, as_json=as_json)


def _run(path: str) -> Path:
    """The folder of a training run."""
    run = training.found(project.find(), path)
    if run is None:
        raise errors.BadInputError(
            f"{path} is not the folder of a training run",
            cause="a misspelt name, or a carried folder, which needs --offline",
            next_step="ls runs",
        )
    return run


def _rule(home: Project, policy: Path, scratch: Path) -> Rule:
    with console.spinner("reading suites and locks"):
        return rule.of(home, policyfile.read(policy), policy.absolute().parent, scratch)


@dataclass(frozen=True)
class Checks:
    """What an image is checked against: public keys and hardware, a policy's rule, or a build of one's own.

    `public`: copies of the keys that were `named`, which nobody else can replace.
    """

    named: Sequence[Path]
    public: Sequence[Path]
    hardware: str | None
    rebuild: bool
    rule: Rule | None


def _carried(home: Project, reference: str, checks: Checks, scratch: Path) -> tuple[Verdict | None, Rebuild | None]:
    """Judge a carried folder, or an OCI layout."""
    folder, image = _folder(reference)
    layout, around = airgap.layout(home, folder)
    verdict = None
    if checks.public:
        verdict = verify.local(home, layout, image, checks.public, scratch, checks.hardware, checks.rule)
        verdict = airgap.judged(verdict, layout, around, checks.named, checks.public, scratch)
    if not checks.rebuild:
        return verdict, None
    return verdict, rebuild.local(home, layout, verdict.image if verdict else image, _anew(home))


def _published(
    home: Project, reference: Reference, checks: Checks, scratch: Path, allow_rollback: bool
) -> tuple[Verdict | None, Rebuild | None]:
    """Judge an image in a registry."""
    verdict = None
    if checks.public:
        with console.spinner(f"asking {reference.repository.host}"):
            verdict = verify.remote(
                home, reference, checks.public, scratch, checks.hardware, allow_rollback=allow_rollback,
                rule=checks.rule,
            )  # fmt: skip
    if not checks.rebuild:
        return verdict, None
    # The digest that was judged: the tag may have moved since.
    return verdict, rebuild.remote(home, reference, verdict.image if verdict else None, _anew(home), scratch)


def _reference(reference: str, insecure: bool) -> Reference:
    """The image of this name, whatever folders there are."""
    try:
        return parse_reference(reference, insecure=insecure)
    except ValueError as error:
        if Path(reference).is_dir():
            what = f"{reference} is a folder, not an image. A training run: {word(f'./{reference}')}; "
            raise typer.BadParameter(f"{what}a carried folder: add --offline", param_hint="REF") from error
        raise typer.BadParameter(str(error), param_hint="REF") from error


def _folder(reference: str) -> tuple[Path, str | None]:
    """The folder that FOLDER or FOLDER@DIGEST names, and the digest."""
    folder, at, image = reference.rpartition("@")
    if at and DIGEST.fullmatch(image):  # a folder that is called so does not change what was asked for
        return Path(folder).absolute(), image
    folder, _, image = (reference, "", "") if Path(reference).is_dir() else reference.partition("@")
    if image:
        raise typer.BadParameter(f"{image!r} is not a digest", param_hint="REF")
    return Path(folder).absolute(), None


def _anew(home: Project) -> rebuild.Builder:
    """Builds the image of a lock without anything that an earlier build left."""

    def build_(lock: Lock, scratch: Path) -> oci.Image:
        refuse(lock.name, audit.stale(lock))
        with console.Working(lock.name) as work:
            return build.anew(home, lock, scratch, work.step)

    return build_


def _report(reference: str, judged: Verdict | None, rebuilt: Rebuild | None, *, as_json: bool) -> None:
    """Print the verdict. A doubt ends with 1."""
    if judged is None:
        assert rebuilt is not None
        verdict, good = rebuilt.alone(reference), rebuilt.identical
    else:
        verdict = rebuilt.added_to(judged) if rebuilt else judged
        good = verdict.good
    if as_json:
        build_ = (
            {"rebuilt": rebuilt.digest, "identical": rebuilt.identical, "signed": judged is not None} if rebuilt else {}
        )
        print_json({**readout.as_json(verdict), "good": good, **build_})
    else:
        rows = list(readout.lines(verdict))
        if judged is None:
            rows[-1] = ("identical, and not certified", "green") if good else ("not identical", "red")
        for line, style in rows:
            console.out.print(line, style=style)
    if not good:
        raise typer.Exit(1)


def _report_run(verdict: RunVerdict, *, as_json: bool) -> None:
    """Print the verdict on a training run. A doubt or an alarm ends with 1."""
    if as_json:
        fields = ("folder", "good", "doubts", "alarms", "advice", "notes")
        predicate = verdict.statement.predicate.model_dump(mode="json")
        print_json({"kind": "run", **{name: getattr(verdict, name) for name in fields}, "predicate": predicate})
    else:
        for line, style in readout.run_lines(verdict):
            console.out.print(line, style=style)
    if not verdict.good:
        raise typer.Exit(1)


@contextmanager
def _temporary() -> Iterator[Path]:
    """A temporary folder. Raises StorageError when there is no room for it."""
    try:
        with tempfile.TemporaryDirectory(prefix="vetted-") as temporary:
            yield Path(temporary)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise refusal.disk_full(str(Path(tempfile.gettempdir(), "vetted-"))) from error
        raise
