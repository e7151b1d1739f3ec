"""Units as Slurm jobs, through submitit: it writes the batch script, the logs, and the answer of each job to a file.

Nothing is scheduled here. Slurm queues, places, and requeues a job whose node fails; submitit then starts the same
unit.

A cluster that lost its state counts its jobs from 1 again, and every cluster counts for itself. So each submission has
a folder of its own, and its jobs have the folder's name: a job is never known by its number alone.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from builder.base import errors, process, sealed, sources
from builder.base.project import Project, sha256
from builder.base.text import word
from builder.fleet import plan, unit
from builder.fleet.unit import Outcome, Unit
from builder.lock import lockfile

POLL = 5.0  # seconds
GRACE = 60.0  # seconds that a shared disk may need to show the answer of a job that has left the queue
JOURNAL, SEALED = "jobs.json", "jobs of a fleet on Slurm"
UNSEALED = (
    "has no seal of yours (an earlier version wrote it, or it comes from elsewhere): its jobs are not followed, and "
    "are submitted again; next: squeue --me, and scancel those of the earlier fleet"
)
FORGOTTEN = "Invalid job id"  # what squeue says of a job that ended minutes ago
# Slurm's reason for a job whose node could not start it: Slurm drains the node, and the job waits until it is released.
NOT_LAUNCHED = "launch failed requeued held"
RELEASES = 2
# What sbatch says of GPUs that the cluster lacks: where it has none, and where it has others. It says the second of
# cores and memory, too, and names them then.
NO_SUCH_GPU = re.compile(r"gres|node configuration", re.IGNORECASE)
OTHER_LACK = re.compile(r"cpu count|memory specification", re.IGNORECASE)
# Variables that sbatch obeys rather than the script, in which the name and the log of the job are ours.
OURS = ("SBATCH_JOB_NAME", "SBATCH_OUTPUT", "SBATCH_ERROR")
PLACE = re.compile(r"vetted-[\w-]+/\d+(_\d+)?")  # of a job in the journal
Queue = dict[tuple[str, str], str]  # the state of a job, by its number and its name


@dataclass(frozen=True)
class Limits:
    """What each job asks for. `minutes`: 0 means as measured."""

    partition: str = ""
    cpus: int = 2
    minutes: int = 0


def submit(
    home: Project, units: Sequence[Unit], limits: Limits, folder: Path, scratch: Path, say: Callable[[str], None]
) -> dict[Unit, Any]:
    """A job for each unit, in arrays of those that ask for the same; a job that runs already is taken up again.

    `say` is told of each job, with its log: minutes may pass before anything else is known of it.
    Raises MissingToolError without Slurm, VettedError when it refuses, NetworkError when it does not answer.
    """
    submitit = _submitit()
    logs, journal = folder / "logs", folder / JOURNAL
    known = _known(journal, lambda: say(f"{home.relative(journal)} {UNSEALED}"))
    identities = {each: _identity(home, each) for each in units}
    jobs = {each: _job(submitit, logs, known[key]) for each, key in identities.items() if key in known}
    queue = _queue(jobs.values()) if jobs else {}
    if queue is None:
        raise errors.NetworkError(
            "Slurm does not answer, and jobs of an earlier fleet may run", next_step="sinfo; then run this again"
        )
    jobs = {each: job for each, job in jobs.items() if job.paths.result_pickle.exists() or _key(job) in queue}
    for each, job in jobs.items():
        say(f"{each.name}: job {job.job_id} of an earlier command; {_log(home, job)}")
    groups: dict[tuple[str, int, int], list[Unit]] = {}
    for each in units:
        if each not in jobs:
            groups.setdefault((each.gpu, each.gpus, limits.minutes or plan.minutes(home, each)), []).append(each)
    for (_, _, minutes), members in groups.items():
        own = logs / f"vetted-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
        try:
            submitted = _submitted(submitit, home, members, limits, minutes, own)
        except submitit.core.utils.FailedJobError as error:
            raise _refusal(home, members, jobs, own, str(error)) from error
        new = dict(zip(members, submitted, strict=True))
        jobs |= new
        known |= {identities[each]: f"{own.name}/{job.job_id}" for each, job in new.items()}
        _note(journal, known, scratch)
        for each, job in new.items():
            say(f"{each.name}: job {job.job_id}, at most {minutes} minutes; {_log(home, job)}")
    return jobs


def _log(home: Project, job: Any) -> str:
    return f"log: {home.relative(job.paths.stderr)}"


def _submitted(
    submitit: Any, home: Project, members: Sequence[Unit], limits: Limits, minutes: int, folder: Path
) -> list[Any]:
    """The jobs of units that ask for the same, in one array."""
    gpu, number = members[0].gpu, members[0].gpus
    executor = submitit.SlurmExecutor(folder=folder)
    more = {"chdir": str(home.root), "requeue": True} | ({"gres": f"gpu:{gpu}:{number}"} if number else {})
    executor.update_parameters(
        job_name=folder.name, time=minutes, cpus_per_task=limits.cpus, nodes=1, ntasks_per_node=1,
        additional_parameters=more, **({"partition": limits.partition} if limits.partition else {}),
    )  # fmt: skip
    # submitit prints a refusal, which the error says too.
    with _without(OURS), contextlib.redirect_stderr(io.StringIO()), executor.batch():
        return [executor.submit(unit.run, str(home.root), each) for each in members]


@contextlib.contextmanager
def _without(variables: Sequence[str]) -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in variables if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def _refusal(
    home: Project, members: Sequence[Unit], jobs: Mapping[Unit, Any], folder: Path, message: str
) -> errors.VettedError:
    """The error for what sbatch said of units. `jobs`: those that Slurm has already."""
    what = f"Slurm refuses the job{'s' if len(members) > 1 else ''} of {', '.join(each.name for each in members)}"
    there = ", ".join(f"{each.name} (job {job.job_id})" for each, job in jobs.items())
    lines = [
        what,
        message,
        *([f"submitted: {there}; the corrected command follows what was submitted"] if there else []),
    ]
    gpu, number = members[0].gpu, members[0].gpus
    if number and NO_SUCH_GPU.search(message) and not OTHER_LACK.search(message):
        cause = f"no node has {number} GPU{'s' if number > 1 else ''} of the kind {gpu}"
        return errors.VettedError("\n".join(lines), cause=cause, next_step="sinfo --format=%G")
    scripts = "".join(f"; sbatch --test-only {word(home.relative(path))}" for path in folder.glob(".*.sh"))
    return errors.VettedError(
        "\n".join(lines),
        cause="an account, a partition, a time limit, or cores or memory that the cluster does not give",
        next_step=f"sinfo --summarize{scripts}",
    )


def outcomes(jobs: Mapping[Unit, Any], say: Callable[[str], None]) -> Iterator[Outcome]:
    """The outcome of each job, once, as it ends. While Slurm does not answer, the jobs are waited for."""
    waiting, left, released = dict(jobs), dict[Unit, float](), Counter[Unit]()
    while waiting:
        queue = _queue(waiting.values())
        states = sorted((queue or {}).values())
        say(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
        for each, job in list(waiting.items()):
            outcome = _answer(each, job)
            if outcome is None and queue is not None and _key(job) not in queue:
                since = left.setdefault(each, time.monotonic())
                if time.monotonic() - since > GRACE:
                    outcome = _lost(each, job)
            elif outcome is None:
                left.pop(each, None)
                if queue and queue.get(_key(job)) == _held(NOT_LAUNCHED):
                    outcome = _again(each, job, released)
            if outcome is not None:
                del waiting[each]
                yield replace(outcome, log=str(job.paths.stderr))
        if waiting:
            time.sleep(POLL)


def collected(home: Project, each: Unit, folder: Path, scratch: Path) -> None:
    """Forget the job of a unit whose answer is kept: the next fleet starts it anew."""
    known = _known(folder / JOURNAL)
    if known.pop(_identity(home, each), None):
        _note(folder / JOURNAL, known, scratch)


def _submitit() -> Any:
    try:
        import submitit  # takes a quarter of a second, which no other command needs
    except ImportError as error:
        raise errors.MissingToolError("submitit is not installed", next_step="uv pip install submitit") from error
    try:
        answer = process.run(["sinfo", "--version"])
    except errors.MissingToolError:
        answer = None
    if answer is None or answer.returncode != 0:
        raise errors.MissingToolError(
            "this machine has no Slurm that answers"
            + (f"\n{answer.output.strip()[-400:]}" if answer else ": sinfo is not installed"),
            cause="the command does not run on a login node of the cluster",
            next_step="run it on a login node; or set SLURM_CONF to the cluster's slurm.conf",
        )
    return submitit


def _answer(each: Unit, job: Any) -> Outcome | None:
    """What a job answered, as soon as it is there."""
    if not job.paths.result_pickle.exists():
        return None
    try:
        answer: Outcome = job.result()
    except Exception as error:  # the unit's own, and submitit's about an answer that it cannot read
        return Outcome(each, "", 0.0, error=str(error)[-unit.TAIL :])
    return answer


def _lost(each: Unit, job: Any) -> Outcome:
    error = errors.VettedError(
        "the job ended without an answer",
        cause="its time limit (--minutes), its memory, or somebody's scancel",
        next_step=f"scontrol show job {word(job.job_id)}",
    )
    return Outcome(each, "", 0.0, error=str(error))


def _again(each: Unit, job: Any, released: Counter[Unit]) -> Outcome | None:
    """Release a job, so that Slurm starts it on another node; the outcome when it cannot be, or was often enough."""
    if released[each] < RELEASES:
        released[each] += 1
        if process.run(["scontrol", "release", job.job_id]).returncode == 0:
            return None
    process.run(["scancel", job.job_id])
    error = "Slurm held the job, because a node could not start it; it is cancelled\nnext: sinfo --list-reasons"
    return Outcome(each, "", 0.0, error=error)


def _key(job: Any) -> tuple[str, str]:
    return job.job_id, job.paths.folder.name


def _queue(jobs: Iterable[Any]) -> Queue | None:
    """The state of each of these jobs that is in Slurm's queue; None when Slurm does not answer.

    A cluster need not keep accounts, so `sacct` is not asked.
    """
    keys = {_key(job) for job in jobs}
    ids = ",".join(sorted({number for number, _ in keys}))
    result = process.run(["squeue", "--noheader", "--array", "--format=%i|%T|%j|%r", f"--jobs={ids}"])
    if result.returncode != 0 and FORGOTTEN not in result.stderr:
        return None
    rows = [line.split("|", 3) for line in result.stdout.splitlines() if line.count("|") > 2]
    return {
        (job, name): _held(reason) if "held" in reason.lower() else state.lower()
        for job, state, name, reason in rows
        if (job, name) in keys
    }


def _held(reason: str) -> str:
    """The state of a job that does not start until somebody releases it."""
    return f"held ({reason})"


def _identity(home: Project, each: Unit) -> str:
    """What decides the answer of a unit, apart from the machine."""
    parts = [asdict(each), lockfile.load(home, each.stack).digest, sources.digest(home.smoke)]
    return sha256(json.dumps(parts, sort_keys=True).encode())


def _job(submitit: Any, logs: Path, place: str) -> Any:
    """A job of an earlier command."""
    folder, _, number = place.partition("/")
    return submitit.SlurmJob(logs / folder, number)


def _note(journal: Path, known: Mapping[str, str], scratch: Path) -> None:
    """Write the journal. It is sealed: an answer is a pickle, whose reading runs code, and it is found by this file."""
    sealed.replace(journal, SEALED, (json.dumps(known, indent=1) + "\n").encode(), scratch)


def _known(journal: Path, say: Callable[[], None] = lambda: None) -> dict[str, str]:
    """The jobs of earlier commands of this user, by identity: FOLDER/NUMBER. `say`: called when its jobs are not
    followed, because it has no seal."""
    try:
        raw = journal.read_bytes()
    except OSError:
        return {}
    if not sealed.intact(journal, SEALED, raw):
        if raw.strip() != b"{}":
            say()
        return {}
    return {key: place for key, place in json.loads(raw).items() if PLACE.fullmatch(place)}
