"""`vetted fleet --on kubernetes`: from the images built here to the Jobs of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from builder import console
from builder.base import errors, ownership, sources
from builder.base.project import Project, write
from builder.base.text import word
from builder.fleet import kubernetes, manifest, plan
from builder.fleet.api import Api, RefusedError
from builder.fleet.kubernetes import Suite
from builder.fleet.manifest import Job, Pods, Work
from builder.fleet.unit import Outcome, Unit
from builder.image import build
from builder.lock import lockfile
from builder.publish import registry
from builder.publish.reference import Repository

MARK = "# Written by `vetted fleet --manifest`.\n"


def prepare(
    home: Project, units: Sequence[Unit], pods: Pods, repository: Repository, minutes: int, scratch: Path
) -> tuple[list[Job], Suite]:
    """The Jobs of units, whose images were built here. Raises VettedError for one that was not."""
    suite = Suite(scratch / "suite", sources.copy(home.smoke, scratch / "suite"))
    jobs = []
    for each in units:
        lock = lockfile.load(home, each.stack)
        built = build.existing(home, lock)
        if built is None:
            raise errors.VettedError(
                f"the image of {each.stack} is not here, so its digest is not known",
                cause="it was never built here, or the lock has changed since",
                next_step=f"vetted build {word(each.stack)}; a build anywhere has the same digest",
            )
        limit = minutes or plan.minutes(home, each)
        work = Work(each, lock, built, f"{repository}@{built.image.manifest}", limit)
        jobs.append(manifest.job(work, pods, suite.root))
    return jobs, suite


def refuse_other(where: str) -> None:
    """Raise StorageError when the file of a manifest is somebody else's."""
    if where and where != "-":
        mark = MARK.encode()
        ownership.refuse(Path(where), lambda content: content.startswith(mark), "name another file with --manifest")


def write_manifest(home: Project, where: str, jobs: Sequence[Job], namespace: str, scratch: Path) -> None:
    """Write the Jobs to a file, or to stdout; what else is said goes to stderr."""
    content = MARK + manifest.to_yaml(jobs, namespace)
    if where == "-":
        print(content, end="")
        return
    refuse_other(where)
    write(Path(where).absolute(), content, scratch)
    console.err.print(f"{len(jobs)} Jobs in {home.relative(Path(where).absolute())}; nothing was run or pushed")
    # `kubectl apply` alone keeps a copy in an annotation, which is too small for the suite.
    console.err.print(
        f"next: kubectl apply --server-side --filename {word(where)}; the same command without --manifest collects"
    )


def run(
    home: Project, jobs: Sequence[Job], suite: Suite, repository: Repository, namespace: str, folder: Path,
    scratch: Path, say: Callable[[str], None],
) -> Iterator[tuple[Outcome, Callable[[], None]]]:  # fmt: skip
    """Push the images that the registry lacks, create the Jobs, and wait for them."""
    api = Api(namespace)  # a missing package or kubeconfig is reported before gigabytes are pushed
    for built in {job.work.unit.stack: job.work.built for job in jobs}.values():
        if registry.manifest(repository, built.image.manifest) is None:
            console.note(f"{built.reference}: pushing to {repository}")
            registry.push(repository, built.image.layout, built.image.manifest)
    kubernetes.submit(api, jobs)
    names = {job.work.unit: job.name for job in jobs}
    for unit, name in names.items():
        console.note(f"{unit.name}: job {name} in {api.namespace}")
    for outcome in kubernetes.outcomes(home, api, jobs, suite, folder / "logs", scratch, say):
        yield outcome, partial(_forget, api, names[outcome.unit])


def _forget(api: Api, name: str) -> None:
    """Remove a Job whose answer is kept. One that stays is no reason to lose the answers of the others."""
    try:
        api.delete(name)
    except (RefusedError, errors.NetworkError):
        console.note(f"next: kubectl delete job,configmap {word(name)} --namespace {word(api.namespace)}")
