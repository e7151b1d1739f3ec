"""From a stack to its image: list, lock, render, build, bake."""

from __future__ import annotations

import dataclasses
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from builder import console
from builder.base import errors, project, quantities, text
from builder.certify import certificate, standing
from builder.commands.common import AsJson, OneStack, Stacks, print_json, refuse, selected
from builder.image import bake, build, daemon, render
from builder.intent import stack
from builder.lock import audit, kernels, lockfile, resolve
from builder.lock import gpus as known
from builder.lock.audit import Finding
from builder.pages import generate, gpus, matrix, weight


def list_(
    by_gpu: Annotated[bool, typer.Option("--gpus", help="Show which GPU runs which stack instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """List stacks, their versions, and where they are certified."""
    home = project.find()
    if by_gpu:
        _print_gpus(gpus.rows(home), as_json)
        return
    rows = []
    for name in stack.names(home):
        lock = lockfile.load(home, name)
        places = standing.certified_on(home, lock, certificate.today())
        rows.append(Row(name, lock.stack.device, matrix.versions(lock), places))
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])
        return
    table = console.plain("stack", *matrix.COLUMNS, "certified on")
    for row in rows:
        places = [text.line(place) for place in row.certified_on]
        table.add_row(row.stack, *row.versions.values(), "\n".join(places) or "not certified")
    console.out.print(table)


def _print_gpus(rows: dict[str, dict[str, str]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    table = console.plain("GPU", "capability", *rows)
    for gpu in known.GPUS:
        table.add_row(gpu.title, gpu.number, *(lines[gpu.title] for lines in rows.values()))
    console.out.print(table)
    console.out.print("read from the kernels in the locked files; only what says certified was run on such a GPU")


@dataclasses.dataclass(frozen=True)
class Row:
    """A stack in the list."""

    stack: str
    device: str
    versions: dict[str, str]
    certified_on: list[str]


def _print_findings(name: str, findings: list[Finding]) -> None:
    for finding in findings:
        console.out.print(f"{name}: {finding.what}")
        if finding.got:
            console.out.print(f"  expected {finding.expected}\n  got      {finding.got}")
        console.out.print(f"  fix: {finding.fix}")


def lock_(
    stacks: Stacks = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing. Exit 1 when a lock is stale or unsound.")
    ] = False,
    upgrade: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PACKAGE", help="Upgrade a package, `debian` or `all`. May be repeated.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Resolve stacks to exact files with hashes. Audit the result."""
    home = project.find()
    answer: dict[str, Any] = {}
    for name in selected(home, stacks):
        intent = stack.load(home, name)
        changed = False
        with home.holding(name) as scratch:
            if not check:
                with console.spinner(f"{name}: resolving"):
                    packages = None if upgrade is None else [] if "all" in upgrade else upgrade
                    changed = resolve.make(home, name, intent, scratch, packages)
            lock = lockfile.load(home, name)
            with console.spinner(f"{name}: auditing"):
                findings = audit.sound(lock, scratch)
                if check:
                    findings = [*findings, *kernels.stale(home, lock)]
        answer[name] = {
            "changed": changed, "digest": lock.digest, "findings": [dataclasses.asdict(f) for f in findings],
        }  # fmt: skip
        if not as_json:
            _print_findings(name, findings)
            if not findings:
                state = "sound" if check else "locked" if changed else "unchanged"
                console.out.print(
                    f"{name}: {state}: {len(lock.python)} distributions, {len(lock.debian)} Debian packages"
                )
                console.out.print(f"  {lock.digest}")
    if as_json:
        print_json(answer)
    if any(row["findings"] for row in answer.values()):
        raise typer.Exit(1)


def render_(
    stacks: Stacks = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing. Exit 1 with a diff when a file is stale.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Render Dockerfiles from locks, and tables in documents."""
    home = project.find()
    differences: dict[str, str] = {}
    for name in selected(home, stacks):
        lock = lockfile.load(home, name)
        with home.holding(name) as scratch:
            difference = render.difference(home, lock)
            if difference:
                differences[home.relative(home.dockerfile(name))] = difference
                if not check:
                    project.write(home.dockerfile(name), render.dockerfile(home, lock), scratch)
    if not stacks:
        with home.holding("documents") as scratch:
            changed = generate.stale(home) if check else generate.refresh(home, scratch)
        differences.update({home.relative(path): "is stale\n" for path in changed})
    if as_json:
        print_json({"changed": differences})
    elif not differences:
        console.out.print("everything rendered is up to date")
    for where, difference in differences.items() if not as_json else ():
        if check:
            console.verbatim(difference if difference.startswith("---") else f"{where} {difference}")
        else:
            console.out.print(f"rendered {where}")
    if check and differences:
        console.note("next: vetted render")
        raise typer.Exit(1)


def build_(
    name: OneStack,
    prove: Annotated[bool, typer.Option("--prove", help="Build twice without cache. Compare every digest.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Copy the OCI layout there.", show_default=False)
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Write its sizes to docs/evidence/images.json.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build the image of a lock, reproducible bit for bit."""
    home = project.find()
    lock = lockfile.load(home, name)
    if output is not None and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise errors.StorageError(f"{output} exists and is not an empty folder", next_step="choose another --output")
    with home.holding(name) as scratch:
        refuse(name, audit.stale(lock))
        with console.Working(name) as work:
            if prove:
                _print_proof(build.prove(home, lock, scratch, work.step), as_json)
                return
            built = build.build(home, lock, scratch, work.step)
        if output is not None:
            shutil.copytree(built.image.layout, output, dirs_exist_ok=True)
        if record:
            with home.holding("documents") as documents, console.spinner(f"{name}: weighing"):
                weight.record(home, lock, built, f"vetted build {name} --record", documents)
                generate.refresh(home, documents)
    if as_json:
        print_json(
            {
                "stack": name, "manifest": built.image.manifest, "config": built.image.config,
                "layers": [layer.digest for layer in built.image.layers], "bytes": built.image.size,
                "layout": str(output or built.image.layout), "buildkit": built.buildkit,
            }
        )  # fmt: skip
        return
    console.out.print(f"{name}: {built.image.manifest}")
    where = home.relative(output or built.image.layout)
    console.out.print(f"  {len(built.image.layers)} layers, {quantities.size(built.image.size)} to pull, in {where}")


def bake_(
    names: Stacks = None,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Only write the bake file and its contexts, for a BuildKit elsewhere.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build several images at once with `docker buildx bake`."""
    home = project.find()
    locks = [lockfile.load(home, name) for name in names or stack.names(home)]
    if not prepare:
        daemon.docker()  # an engine that does not answer is reported before any work begins
    with home.holding("bake") as scratch, ExitStack() as stack_locks:
        for lock in locks:
            stack_locks.enter_context(home.holding(lock.name))
            refuse(lock.name, audit.stale(lock))
        with console.Working("bake") as work:
            path = bake.prepare(home, locks, scratch, work.step)
            builds = {} if prepare else bake.run(home, locks, path, scratch, work.step)
    if prepare:
        command = f"docker buildx bake --builder NAME --file {home.relative(path)}"
        if as_json:
            print_json({"file": str(path), "targets": [bake.name(lock) for lock in locks], "command": command})
        else:
            console.out.print(f"{home.relative(path)}: {', '.join(bake.name(lock) for lock in locks)}\n  {command}")
        return
    if as_json:
        print_json(
            {name: {"manifest": built.image.manifest, "bytes": built.image.size} for name, built in builds.items()}
        )
        return
    for name, built in builds.items():
        console.out.print(f"{name}: {built.image.manifest}, {quantities.size(built.image.size)} to pull")


def _print_proof(proof: build.Proof, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "identical": proof.difference is None, "first": proof.first, "second": proof.second,
                "difference": dataclasses.asdict(proof.difference) if proof.difference else None,
            }
        )  # fmt: skip
    elif proof.difference is None:
        console.out.print(f"identical: two builds without cache gave {proof.first}")
        console.out.print("  manifest, config and every layer have the same digest")
    else:
        console.out.print(f"different: {proof.difference}")
    if proof.difference is not None:
        raise typer.Exit(1)
