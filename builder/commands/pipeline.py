"""From a stack to its image: lock, render, build, bake."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from builder import console
from builder.base import errors, output_folder, project, quantities
from builder.base.project import Project
from builder.base.text import word
from builder.commands import remote, usage
from builder.commands.common import AsJson, OneStack, PlatformName, Stacks, print_json, refuse, selected
from builder.image import bake, build, daemon, index
from builder.intent import stack
from builder.intent.platform import AMD64, PLATFORMS
from builder.lock import audit, kernels, lockfile, resolve
from builder.lock.audit import AuditFinding
from builder.lock.lockfile import Lock
from builder.pages import generate, weight


def _packages(home: Project, names: Sequence[str], upgrade: list[str] | None) -> list[str] | None:
    """What `--upgrade` asks of these stacks; an empty list is everything. Raises BadInputError for what cannot move."""
    if upgrade is None:
        return None
    named = [package for package in upgrade if package != "all"]
    for name in names:
        resolve.refuse_upgrade(home, name, named)
    return named if len(named) == len(upgrade) else []


def _print_findings(name: str, findings: list[AuditFinding]) -> None:
    for finding in findings:
        console.out.print(f"{name}: {finding.what}")
        if finding.got:
            console.out.print(f"  expected {finding.expected}\n  got      {finding.got}")
        console.out.print(f"  fix: {finding.fix}")


def _base_layer(lock: Lock, scratch: Path) -> list[AuditFinding]:
    """The audit of the Debian packages; without a mirror their hashes are left out, and a note says so."""
    findings = audit.base_layer(lock)
    try:
        return findings + audit.mirrored(lock, scratch)
    except (errors.NetworkError, errors.MissingToolError) as error:
        what = error.what.partition("\n")[0]
        console.note(f"{lock.name}: its Debian packages were not compared with a mirror: {what}")
        return findings


def _print_lock(locks: Sequence[Lock], state: str, findings: Sequence[AuditFinding]) -> None:
    lock, *others = locks
    if findings and state == "locked":
        console.out.print(f"{lock.name}: locked all the same: its files are written")
    if not findings:
        console.out.print(f"{lock.name}: {state}: {len(lock.python)} distributions, {len(lock.debian)} Debian packages")
        console.out.print(f"  {lock.digest}")
        for other in others:
            console.out.print(f"  {other.digest}, for {other.platform.name}")


def lock_(
    context: typer.Context,
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
    if check:
        usage.refuse(context, ("upgrade",), "does not go with --check, which moves nothing")
    home = project.find()
    answer: dict[str, Any] = {}
    names = selected(home, stacks)
    packages = None if check else _packages(home, names, upgrade)  # before any lock is written
    for name in names:
        intent = stack.load(home, name)
        changed = False
        with home.holding(name) as scratch:
            if not check:
                with console.spinner(f"{name}: resolving"):
                    changed = resolve.make(home, name, intent, scratch, packages)
            lock, *others = lockfile.load_all(home, name)
            with console.spinner(f"{name}: auditing"):
                findings = audit.sound(lock, scratch)
                for other in others:
                    findings += audit.sound_on(lock, other, scratch)
                for locked in (lock, *others) if check else ():
                    findings += [*_base_layer(locked, scratch), *kernels.stale(home, locked)]
        answer[name] = {
            "changed": changed, "digest": lock.digest, "findings": [dataclasses.asdict(f) for f in findings],
        }  # fmt: skip
        if not as_json:
            _print_findings(name, findings)
            state = "locked" if changed else "unchanged"
            _print_lock((lock, *others), "sound" if check else state, findings)
    if as_json:
        print_json(answer)
    if any(row["findings"] for row in answer.values()):
        raise typer.Exit(1)


def build_(
    context: typer.Context,
    name: OneStack,
    prove: Annotated[
        bool, typer.Option("--prove", help="Build twice without cache, compare every digest, and keep the image.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Copy the OCI layout there.", show_default=False)
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Write its sizes to docs/evidence/images.json.")] = False,
    platform: Annotated[
        PlatformName, typer.Option(help="The processor to build for; `all` also makes one index of the images.")
    ] = PlatformName.amd64,
    as_json: AsJson = False,
) -> None:
    """Build the image of a lock, reproducible bit for bit."""
    home = project.find()
    if output is not None:
        output_folder.refuse(output)
    if platform is PlatformName.all:
        usage.refuse(context, ("prove", "record"), "is for one platform, and not for --platform all")
        _build_all(home, name, output, as_json)
        return
    lock = lockfile.load(home, name, PLATFORMS[platform])
    with home.holding(name) as scratch:
        refuse(name, audit.stale(lock))
        with console.Working(lock.image) as work:
            proof = build.prove(home, lock, scratch, work.step) if prove else None
            built = None if proof else build.build(home, lock, scratch, work.step)
        if proof:
            _print_proof(proof, as_json)  # a difference ends it
        built = built or build.needed(home, lock)
        if output is not None:
            _copy(built.image.layout, output)
        if record:
            with home.holding(".documents") as documents, console.spinner(f"{lock.image}: weighing"):
                options = (" --prove" if prove else "") + (
                    "" if lock.platform is AMD64 else f" --platform {lock.platform.name}"
                )
                weight.record(home, lock, built, f"vetted build {word(name)}{options} --record", documents)
                generate.refresh(home, documents)
    if prove:
        return
    if as_json:
        print_json(
            {
                "stack": name, "platform": lock.platform.name,
                "manifest": built.image.manifest, "config": built.image.config,
                "layers": [layer.digest for layer in built.image.layers], "bytes": built.image.size,
                "layout": str(output or built.image.layout), "buildkit": built.buildkit,
            }
        )  # fmt: skip
        return
    console.out.print(f"{lock.image}: {built.image.manifest}")
    where = home.relative(output or built.image.layout)
    console.out.print(f"  {len(built.image.layers)} layers, {quantities.size(built.image.size)} to pull, in {where}")


def _build_all(home: Project, name: str, output: Path | None, as_json: bool) -> None:
    """Build the images of a stack for all of its platforms, and one index of them."""
    locks = lockfile.load_all(home, name)
    kept = home.state / "images" / f"{name}.index"
    with home.holding(name) as scratch:
        images = []
        for lock in locks:
            refuse(name, audit.stale(lock))
            (folder := scratch / lock.platform.name).mkdir()
            with console.Working(lock.image) as work:
                images.append(build.build(home, lock, folder, work.step).image)
        digest = index.make(images, scratch / "index")
        if output is not None:
            _copy(scratch / "index", output)
        else:
            shutil.rmtree(kept, ignore_errors=True)
            shutil.move(scratch / "index", kept)
    target = output or kept
    if as_json:
        manifests = {lock.platform.name: image.manifest for lock, image in zip(locks, images, strict=True)}
        print_json({"stack": name, "index": digest, "manifests": manifests, "layout": str(target)})
        return
    console.out.print(f"{name}: {digest}, in {home.relative(target)}")
    for lock, image in zip(locks, images, strict=True):
        console.out.print(f"  {lock.platform.docker}: {image.manifest}, {quantities.size(image.size)} to pull")


def _copy(layout: Path, output: Path) -> None:
    output_folder.refuse(output)  # the build took a while
    with output_folder.folder(output) as partial:
        shutil.copytree(layout, partial, dirs_exist_ok=True)


def bake_(
    context: typer.Context,
    names: Stacks = None,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Only write the bake file and its contexts, for a BuildKit elsewhere.")
    ] = False,
    builders: Annotated[
        list[str] | None,
        typer.Option(
            "--builder", metavar="NAME", show_default=False,
            help="A builder of buildx or a context of docker; several share the stacks.",
        ),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(
            metavar="HOST/PATH", show_default=False, help="A repository for layers, which all builders share."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Build several images at once with `docker buildx bake`."""
    if prepare:
        usage.refuse(context, ("builders",), "does not go with --prepare, which builds nothing")
    home = project.find()
    locks = [lockfile.load(home, name) for name in dict.fromkeys(names or stack.names(home))]
    layers = str(remote.repository(cache, insecure=False, option="--cache")) if cache else None
    if not prepare:
        daemon.docker()  # an engine that does not answer is reported before any work begins
    with home.holding(".bake") as scratch, ExitStack() as stack_locks:
        for lock in locks:
            stack_locks.enter_context(home.holding(lock.name))
            refuse(lock.name, audit.stale(lock))
        with console.Working("bake") as work:
            path = bake.prepare(home, locks, scratch, work.step, layers)
            builds = {} if prepare else bake.run(home, locks, path, scratch, work.step, builders or ())
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
