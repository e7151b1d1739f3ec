"""Many stacks on many machines: fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import machine, ownership, project, text
from builder.base.project import Project
from builder.certify import certificate
from builder.commands import kube, remote, usage
from builder.commands.common import AsJson, EngineName, answering_engine, print_json, refuse, selected
from builder.fleet import collect, manifest, plan, slurm, unit
from builder.fleet.collect import Collected
from builder.fleet.manifest import Pods
from builder.fleet.slurm import Limits
from builder.fleet.unit import Outcome, Unit
from builder.lock import audit, lockfile
from builder.pages import generate

LINES = 6  # of what happened; the usual cause and the next command are printed however long that is
ADVICE = ("usual cause: ", "next: ")
# Outcomes as they come, each with what makes the scheduler forget its job once the answer is kept.
Run = Iterator[tuple[Outcome, Callable[[], None]]]


class Place(StrEnum):
    local = "local"
    slurm = "slurm"
    kubernetes = "kubernetes"


StackNames = Annotated[list[str], typer.Argument(metavar="STACK...", help="The stacks.", show_default=False)]
On = Annotated[Place, typer.Option("--on", help="local: one after the other, here.", show_default=False)]
Kinds = Annotated[
    str,
    typer.Option("--gpus", metavar="KIND:N,…", help="GPUs of CUDA stacks, as the scheduler calls them: h200:2,a100:1"),
]
Engine = Annotated[EngineName, typer.Option("--engine", help="How the suite runs on a node.")]
Partition = Annotated[str, typer.Option(help="Slurm's partition.", show_default="Slurm's own")]
Cpus = Annotated[int, typer.Option(min=1, help="Cores of each job.")]
Minutes = Annotated[int, typer.Option(min=0, help="Time limit.", show_default="as measured")]
ImageRegistry = Annotated[
    str, typer.Option("--image-registry", metavar="HOST/PATH", help="Kubernetes: where nodes pull the images from.")
]
Namespace = Annotated[str, typer.Option(help="Kubernetes' namespace.", show_default="the kubeconfig's")]
Queue = Annotated[str, typer.Option(metavar="NAME", help="A LocalQueue of Kueue.")]
Memory = Annotated[int, typer.Option(min=1, metavar="GIB", help="Memory of each pod.")]
GpuLabel = Annotated[str, typer.Option(metavar="LABEL", help="The label of nodes that has the kinds of --gpus.")]
ManifestFile = Annotated[
    str, typer.Option("--manifest", metavar="FILE", help="Write the Jobs of Kubernetes, and run nothing; -: stdout.")
]
Output = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Statements. Default: .vetted/fleet/statements.", show_default=False)
]


@dataclass(frozen=True)
class Kubernetes:
    """What only Kubernetes is told."""

    pods: Pods
    registry: str
    namespace: str
    manifest_file: str


@dataclass(frozen=True)
class Request:
    """Where the units run, and with what."""

    place: Place
    limits: Limits
    kubernetes: Kubernetes
    as_json: bool


def fleet_(
    context: typer.Context,
    stacks: StackNames,
    place: On,
    kinds: Kinds = "",
    engine_name: Engine = EngineName.host,
    partition: Partition = "",
    cpus: Cpus = 2,
    minutes: Minutes = 0,
    registry: ImageRegistry = "",
    namespace: Namespace = "",
    queue: Queue = "",
    memory: Memory = 32,
    gpu_label: GpuLabel = manifest.GPU_LABEL,
    manifest_file: ManifestFile = "",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Certify many stacks: one stack in, one statement out.

    The cluster queues and requeues; this command may be interrupted and run again, and follows what runs.
    """
    if (place is Place.kubernetes) != bool(registry):
        raise typer.BadParameter("goes with --on kubernetes, which needs it", param_hint="--image-registry")
    _refuse_unused(context, place, manifest_file)
    home = project.find()
    pods = Pods(queue, cpus, memory, gpu_label)
    there = Kubernetes(pods, registry, namespace, manifest_file)
    request = Request(place, Limits(partition, cpus, minutes), there, as_json)
    units = _units(home, stacks, place, kinds, engine_name)
    target = output or home.state / "fleet" / "statements"
    kube.refuse_other(manifest_file)
    for each in units:
        ownership.refuse(collect.path(target, each), _is_statement, "choose another --output")
    done = []
    with home.holding(".fleet") as scratch, console.spinner("fleet") as _:
        for outcome, forget in _runs(home, units, request, scratch):
            alone = [each.stack for each in units].count(outcome.unit.stack) == 1
            done.append(collect.collect(home, outcome, target, scratch, place=alone))
            forget()
            if not as_json:
                _print(home, done[-1])
    if any(each.placed for each in done):
        with home.holding(".documents") as scratch:
            generate.refresh(home, scratch)
    if as_json:
        print_json([_json(each) for each in done])
    else:
        good = sum(each.good for each in done)
        where = f"; statements in {home.relative(target)}" if any(each.file for each in done) else ""
        console.out.print(f"{good} of {len(units)} certified{where}")
    if not all(each.good for each in done):
        raise typer.Exit(1)


def _is_statement(content: bytes) -> bool:
    return ownership.document(content).get("_type") == certificate.STATEMENT


def _refuse_unused(context: typer.Context, place: Place, manifest_file: str) -> None:
    """Refuse what this place does not ask for."""
    if place is not Place.kubernetes:
        kubernetes = ("manifest_file", "namespace", "queue", "memory", "gpu_label")
        usage.refuse(context, kubernetes, "goes with --on kubernetes")
    if place is not Place.slurm:
        usage.refuse(context, ("partition",), "goes with --on slurm")
    if place is Place.local:
        usage.refuse(context, ("kinds", "cpus", "minutes"), "is for a scheduler: a stack has this whole machine")
    if place is Place.kubernetes:
        usage.refuse(context, ("engine_name",), "does not go with --on kubernetes: there the suite runs in the image")
    if manifest_file:
        usage.refuse(context, ("output",), "has nothing to write with --manifest, which runs nothing")
    if manifest_file == "-":
        usage.refuse(context, ("as_json",), "does not go with --manifest -: stdout has the Jobs")


def _units(home: Project, stacks: list[str], place: Place, kinds: str, engine_name: EngineName) -> list[Unit]:
    """What is to run; an unknown stack, a stale lock or a missing GPU is reported before any work begins."""
    try:
        named = plan.gpus(kinds) if kinds else []
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--gpus") from error
    engine: str = answering_engine() if place is Place.local and engine_name is EngineName.docker else engine_name
    if place is Place.kubernetes:
        engine = manifest.ENGINE
    units = plan.units(home, selected(home, stacks), [("", 0)] if place is Place.local else named, engine)
    if named and not any(each.gpus for each in units):
        raise typer.BadParameter("none of these stacks uses a GPU", param_hint="--gpus")
    for each in units:
        lock = lockfile.load(home, each.stack)
        refuse(each.stack, audit.stale(lock))
        if place is Place.local:
            machine.hardware(lock.stack.device)
    return units


def _runs(home: Project, units: Sequence[Unit], request: Request, scratch: Path) -> Run:
    """Run them where they were asked for; raises Exit when only the Jobs were to be written."""
    folder = home.state / "fleet"
    if request.place is Place.slurm:
        return _on_slurm(home, units, request.limits, folder, scratch)
    if request.place is Place.local:
        return _here(home, units, folder / "logs")
    there = request.kubernetes
    pushed = remote.repository(there.registry, insecure=False, option="--image-registry")
    jobs, suite = kube.prepare(home, units, there.pods, pushed, request.limits.minutes, scratch)
    if there.manifest_file:
        kube.write_manifest(home, there.manifest_file, jobs, there.namespace, scratch)
        if request.as_json:
            print_json({"manifest": there.manifest_file, "jobs": [job.name for job in jobs]})
        raise typer.Exit
    return kube.run(home, jobs, suite, pushed, there.namespace, folder, scratch, _quiet())


def _here(home: Project, units: Sequence[Unit], logs: Path) -> Run:
    for each in units:
        console.note(f"{each.name}: running")
        log = logs / f"{each.name}-{each.engine}.log"
        yield unit.run(str(home.root), each, str(home.state), str(log)), lambda: None


def _on_slurm(home: Project, units: Sequence[Unit], limits: Limits, folder: Path, scratch: Path) -> Run:
    jobs = slurm.submit(home, units, limits, folder, scratch, console.note)
    for outcome in slurm.outcomes(jobs, _quiet()):
        yield outcome, partial(slurm.collected, home, outcome.unit, folder, scratch)


def _quiet() -> Callable[[str], None]:
    """Reports the states of the jobs when they change."""
    last = [""]

    def say(states: str) -> None:
        if states and states != last[0]:
            console.note(states)
            last[0] = states

    return say


def _print(home: Project, each: Collected) -> None:
    outcome = each.outcome
    where = f"on {outcome.node}, {outcome.seconds:.0f} s" if outcome.node else ""
    state = "certified" if each.good else "not certified"
    console.out.print(f"{outcome.unit.name}: {state} {where}".rstrip(), style="green" if each.good else "red")
    for doubt in each.doubts:
        lines = doubt.splitlines()
        for line in lines[:LINES] + [line for line in lines[LINES:] if line.startswith(ADVICE)]:
            console.out.print(f"  {text.line(line)}")
    if each.file:
        console.out.print(f"  {home.relative(each.file)}")
    if log := _log(each):
        console.out.print(f"  log: {home.relative(log)}")


def _log(each: Collected) -> Path | None:
    """The log of a unit that is not certified, if it left one: a job that never began did not."""
    log = Path(each.outcome.log)
    return log if not each.good and log.is_file() else None


def _json(each: Collected) -> dict[str, object]:
    outcome, log = each.outcome, _log(each)
    return {
        "unit": outcome.unit.name, "stack": outcome.unit.stack, "gpu": outcome.unit.gpu, "gpus": outcome.unit.gpus,
        "node": outcome.node, "seconds": outcome.seconds, "good": each.good, "doubts": list(each.doubts),
        "statement": str(each.file) if each.file else None, "log": str(log) if log else None,
    }  # fmt: skip
