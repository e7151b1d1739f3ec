"""For hosts without a network: bundle, and what its entry script runs there."""

from __future__ import annotations

import enum
import json
import re
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import machine, project, quantities
from builder.base.project import Project
from builder.base.text import word
from builder.bundle import archive, bundle, destination, inside, offline, present, routes
from builder.bundle.contents import read_unpacked
from builder.bundle.journal import Journal
from builder.certify import certificate
from builder.certify.certify import Options
from builder.commands import usage
from builder.commands.common import AsJson, Device, OneStack, print_json, refuse
from builder.image import build
from builder.image.buildx import BuildStep
from builder.intent import advisory
from builder.lock import audit, lockfile
from builder.lock.lockfile import Lock
from builder.publish import airgap


class Route(enum.StrEnum):
    """How a stack comes to a host without Docker."""

    host = routes.HOST
    image = routes.IMAGE


Output = Annotated[Path, typer.Option(metavar="DIR", help="The folder to write to.", show_default=False)]
PartSize = Annotated[str, typer.Option(metavar="SIZE", help="The largest part, in K, M or G.")]
Look = Annotated[
    Path | None,
    typer.Option(
        metavar="LOOK", show_default=False,
        help="The folder that scripts/first_contact.py wrote on the host: its files are left out.",
    ),
]  # fmt: skip
HostPython = Annotated[
    str | None, typer.Option(help="Use the host's Python, such as 3.12: for a report.", show_default="the stack's")
]
ByRoute = Annotated[
    Route | None, typer.Option(help="The locked files, or the layers of the image.", show_default="the smaller one")
]
WholeImage = Annotated[
    bool, typer.Option("--image", help="Bundle the certified image instead, signed, with its public key.")
]
PrivateKey = Annotated[
    str | None, typer.Option(metavar="FILE", help="The private cosign key, with --image.", show_default=False)
]


def bundle_(
    context: typer.Context,
    name: OneStack,
    output: Output,
    part_size: PartSize = archive.PART_SIZE,
    have: Look = None,
    python: HostPython = None,
    route: ByRoute = None,
    image: WholeImage = False,
    key: PrivateKey = None,
    as_json: AsJson = False,
) -> None:
    """Bundle a stack for a host without a network.

    The folder has everything that the host needs to run the suite, in parts of limited size.
    """
    if image != (key is not None) or (image and (have or python or route)):
        raise typer.BadParameter("--image goes with --key, and without --have, --python, --route", param_hint="--image")
    if image:
        usage.refuse(context, ("part_size",), "does not go with --image, which is written in one piece")
    if python and route == Route.image:
        raise typer.BadParameter("an image has its own Python", param_hint="--python")
    home = project.find()
    lock = lockfile.load(home, name)
    if key is not None:
        _bundle_image(home, lock, key, output, as_json)
        return
    try:
        size = archive.parse_size(part_size)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--part-size") from error
    if python is not None and not re.fullmatch(r"3\.[0-9]{1,2}", python):
        raise typer.BadParameter(f"{python!r} is not a version such as 3.12", param_hint="--python")
    # Without --route, an image is chosen only where it is known to run, and where files of the host make it small.
    default = None if have and not python and present.can_mount(have) else Route.host
    request = bundle.Request(python, present.read(have) if have else {}, route or default)
    with home.holding(name) as scratch:
        refuse(name, audit.stale(lock))
        with console.Working(name) as work:
            written = bundle.make(
                home, lock, request, output, scratch, size, lambda what: work.step(BuildStep(0, 0, what))
            )  # fmt: skip
    if as_json:
        print_json(_json(name, output, written))
    else:
        _print(name, output, written)


def _json(name: str, output: Path, written: bundle.Bundle) -> dict[str, object]:
    return {
        "stack": name, "output": str(output), "manifest": written.digest, "parts": written.parts,
        "bytes": written.size, "python": written.contents.python, "carried": written.contents.carried,
        "route": written.route, "routes": dict(written.routes),
        "hollow": [file.name for file in written.contents.hollow],
    }  # fmt: skip


def _print(name: str, output: Path, written: bundle.Bundle) -> None:
    contents = written.contents
    console.out.print(f"{name}: {written.parts} parts, {quantities.size(written.size)}, in {output}")
    if contents.image:
        console.out.print(
            f"  the image {contents.image.manifest}: {len(contents.image.layers)} layers; needs root there"
        )
    else:
        whose = "the stack's own Python" if contents.carried else f"the host's Python {contents.python}: for a report"
        console.out.print(
            f"  {len(contents.distributions)} distributions, {len(contents.hollow)} filled from the host; {whose}"
        )
    for route, size in written.routes.items():
        console.out.print(f"  route {route}: {quantities.size(size)}{', chosen' if route == written.route else ''}")
    entry = f"{_name(output)}/{destination.ENTRY}"
    command = f"python{'3' if contents.carried else word(contents.python)} {word(entry)}"
    console.out.print(f"next: copy the folder to the host, and there: {command}")


def _name(output: Path) -> str:
    """The name of a folder, which the path `.` does not say."""
    return output.absolute().name


def _bundle_image(home: Project, lock: Lock, key: str, output: Path, as_json: bool) -> None:
    with home.holding(lock.name) as scratch:
        refuse(lock.name, audit.stale(lock))
        built = build.needed(home, lock)
        with console.Working(lock.name) as work:
            written = airgap.make(
                home, lock, built, key, output, scratch, lambda what: work.step(BuildStep(0, 0, what))
            )
    if as_json:
        print_json({"stack": lock.name, "output": str(output), "image": written.image, "bytes": written.size})
        return
    console.out.print(f"{lock.name}: {written.image}\n  {quantities.size(written.size)} in {output}")
    verify = f"vetted verify {word(_name(output))} --offline --key YOUR-COPY/{airgap.KEY}"
    console.out.print(
        f"next: copy the folder, and in it: sh {airgap.LOAD}; docker compose run --rm train\n"
        f"      before that, to check it, where Vetted is: {verify}\n"
        f"      the {airgap.KEY} in the folder proves nothing: whoever changes the folder can change it, too",
    )


def run_bundle(
    python: Annotated[Path, typer.Option()],
    device: Annotated[Device, typer.Option()],
    host: Annotated[list[Path] | None, typer.Option()] = None,
    probe: Annotated[list[str] | None, typer.Option()] = None,
    as_json: AsJson = False,
) -> None:
    """Run by the entry script of a bundle: install, run the suite, write the statement."""
    home = project.find()
    lock, contents = read_unpacked(home)
    request = Options(device, offline.ENGINE, tuple(probe or ()))
    machine.hardware(device)  # a missing GPU is reported before any work begins
    advisories = advisory.load_all(home)
    place = offline.Host(python, tuple(host or ()))
    with home.holding(lock.name) as scratch, console.Working(lock.name) as work:
        journal = Journal(home.state, work.step, work.event)
        outcome = offline.run(home, lock, contents, request, place, scratch, journal.step, journal.event)
    statement, earned = outcome.statement, outcome.certificate is not None
    where = outcome.certificate or outcome.report
    different = statement.resource(certificate.DIFFERENCES).annotations or {}
    if as_json:
        print_json(
            {
                "stack": lock.name, "certified": earned, "file": str(where), "differences": different,
                "statement": json.loads(statement.to_json()),
            }
        )  # fmt: skip
    else:
        console.out.print(console.results_table(statement.predicate.probes))
        for line in console.reasons(statement.predicate.probes, lock.versions, advisories):
            console.out.print(line)
        console.out.print()
        for row in offline.summary(different):
            console.out.print(f"differs from the lock: {row}")
        for doubt in outcome.doubts:
            console.out.print(f"doubt: {doubt}")
        console.out.print("certified" if earned else "a report, and no certificate")
        console.out.print(f"  {where}")
        if earned:
            engine = inside.ENGINE if contents.image else offline.ENGINE
            back = f"lockfiles/{lock.name}/certificates/{device}-{engine}.json"
            console.out.print(f"next: copy it back to {word(back)}")
    good = statement.earned and not outcome.doubts
    journal.end(0 if good else 1, f"{'certified' if earned else 'a report, and no certificate'}: {where}")
    if not good:
        raise typer.Exit(1)
