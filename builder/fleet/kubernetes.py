"""Units as Kubernetes Jobs, through its official client.

Nothing is scheduled here. Kubernetes, and Kueue where there is a queue, place the pods and start them again. While the
API server does not answer, the Jobs are waited for; a command that is run again finds them by their names.
"""

from __future__ import annotations

import datetime
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.base import errors
from builder.base.project import Project, write
from builder.base.text import word
from builder.fleet import answer
from builder.fleet.api import Api, RefusedError, readable
from builder.fleet.manifest import CONTAINER, JOB, Job, Work
from builder.fleet.unit import TAIL, Outcome

POLL = 5.0  # seconds
STUCK = 24  # looks in a row after which a pod that cannot start is given up: a registry may be away for two minutes
HOPELESS = (  # why a container waits, when waiting does not help
    "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ImageInspectError", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError",
)  # fmt: skip
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
QUOTA = "exceeded quota"  # other pods will end


@dataclass(frozen=True)
class Suite:
    """The suite that the pods run: a copy below `root`, and its digest."""

    root: Path
    digest: str


def submit(api: Api, jobs: Sequence[Job]) -> None:
    """Create what is not there yet: a unit that runs already is taken up again. Raises VettedError."""
    api.require_version()
    for each in jobs:
        api.create_config_map(each.config_map)
        api.create_job(each.job)


def outcomes(
    home: Project, api: Api, jobs: Sequence[Job], suite: Suite, logs: Path, scratch: Path,
    say: Callable[[str], None],
) -> Iterator[Outcome]:  # fmt: skip
    """The outcome of each unit, once, as it ends. `logs`: where those of the pods are kept."""
    waiting, stuck = list(jobs), Counter[str]()
    reader = _Reader(home, api, suite, logs, scratch)
    while waiting:
        states: list[str] = []
        try:
            listed, pods = api.jobs(), api.pods()
            for each in list(waiting):
                with readable():
                    mine = [pod for pod in pods if pod["metadata"]["labels"].get(JOB) == each.name]
                    state = reader.look(each.work, each.name, listed.get(each.name), mine)
                hopeless = state.hopeless if isinstance(state, _Waits) else ""
                stuck[each.name] = stuck[each.name] + 1 if hopeless else 0
                if stuck[each.name] >= STUCK:
                    state = Outcome(each.work.unit, "", 0.0, error=hopeless)
                if isinstance(state, _Waits):
                    states.append(state.why)
                else:
                    waiting.remove(each)
                    yield state
        except errors.NetworkError as error:
            states = [error.what.splitlines()[0]]
        say(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
        if waiting:
            time.sleep(POLL)


@dataclass(frozen=True)
class _Waits:
    """What a unit waits for. `hopeless`: the error that it will have, where waiting alone does not help."""

    why: str
    hopeless: str = ""


class _Reader:
    """Reads what became of a Job. Where `logs` are kept is named in errors."""

    def __init__(self, home: Project, api: Api, suite: Suite, logs: Path, scratch: Path) -> None:
        self._home, self._api, self._suite, self._logs, self._scratch = home, api, suite, logs, scratch

    def look(self, work: Work, name: str, job: Any, pods: Sequence[Any]) -> Outcome | _Waits:
        """The outcome of a unit, or what it waits for. Raises NetworkError when the API server does not answer."""
        if job is None:
            return Outcome(work.unit, "", 0.0, error=f"its Job {name} was deleted by somebody else")
        listed = job["status"].get("conditions") or ()
        conditions = {each["type"]: each for each in listed if each["status"] == "True"}
        pods = sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        if "Complete" in conditions:
            done = [pod for pod in pods if _phase(pod) == "Succeeded"]
            return self._answered(work, done[-1] if done else None)
        if "Failed" in conditions:
            failed = [pod for pod in pods if _phase(pod) == "Failed"]
            return self._failed(work, name, failed[-1] if failed else None, conditions["Failed"])
        if job["spec"].get("suspend"):
            return _Waits("suspended, which Kueue ends")
        alive = [pod for pod in pods if _phase(pod) in ("Pending", "Running")]
        return _pending(alive[-1]) if alive else self._without_pod(job)

    def _without_pod(self, job: Any) -> _Waits:
        """A Job that cannot have a pod says so in its events alone."""
        refusals = [event for event in self._api.events(job) if event.get("reason") == "FailedCreate"]
        message = str(refusals[-1].get("message")) if refusals else ""
        if not message or QUOTA in message:
            return _Waits("waiting for a pod" + (f": {message}" if message else ""))
        hint = _explained(
            f"the cluster refuses the pod: {message}",
            cause="the namespace enforces Pod Security: a supervisor apart from the probes needs SYS_PTRACE",
            next_step=f"kubectl label namespace {word(self._api.namespace)} "
            "pod-security.kubernetes.io/enforce=privileged",
        )
        return _Waits("refused", hint)

    def _answered(self, work: Work, pod: Any) -> Outcome:
        node, seconds, day = _where(pod)
        if pod is None:
            return Outcome(
                work.unit, node, seconds,
                error=_explained(
                    "its pod is gone, and its answer with it", cause="the node was removed after the suite ended",
                    next_step="run this again",
                ),
            )  # fmt: skip
        # Not the first one's: an admission webhook may put others before it.
        ran, image = str(next((status["imageID"] for status in _statuses(pod)), "no image")), work.built.image
        if not ran.endswith((image.manifest, image.config)):
            return Outcome(
                work.unit, node, seconds,
                error=_explained(
                    f"the node ran another image\nexpected {work.reference}\ngot      {ran}",
                    cause="an admission webhook or a mirror replaces images",
                    next_step=f"kubectl get pod {word(_name(pod))} --output yaml",
                ),
            )  # fmt: skip
        try:
            log = self._log(pod)
            statement = answer.statement(
                self._home, work, self._suite.root, self._suite.digest, self._api.version, day, log
            )
        except errors.NetworkError:
            raise
        except errors.VettedError as error:
            return Outcome(work.unit, node, seconds, error=str(error), log=self._file(pod))
        return Outcome(work.unit, node, seconds, statement, log=self._file(pod))

    def _failed(self, work: Work, name: str, pod: Any, condition: Any) -> Outcome:
        node, seconds, _ = _where(pod)
        if pod is None:
            reason = f"{condition.get('reason')}: {condition.get('message')}"
            return Outcome(work.unit, node, seconds, error=f"its Job failed. {reason}"[:TAIL])
        ended, status, cause, next_step = _ended(pod), pod["status"], "", ""
        what = f"exit code {ended['exitCode']}" if ended else "no exit code"
        why = status.get("reason") or ended.get("reason") or condition.get("reason")
        if why == "DeadlineExceeded":
            cause, next_step = "a slow node, or a slow pull of the image", "the same command with --minutes"
        elif why == "OOMKilled":
            cause, next_step = "the pod has too little memory", "the same command with --memory"
        elif why == "Evicted":
            cause, next_step = "the node ran out of disk or memory", "kubectl describe nodes; then run this again"
        message = str(status.get("message") or ended.get("message") or "")[-TAIL:]
        try:
            self._log(pod)
            next_step = next_step or f"read {word(self._file(pod))}"
        except RefusedError:  # of a pod that never ran, there is none
            next_step = next_step or f"kubectl describe job {word(name)}"
        text = f"its pod ended without an answer: {why}, {what}" + (f"\n{message.strip()}" if message else "")
        explained = _explained(text, cause=cause, next_step=next_step)
        return Outcome(work.unit, node, seconds, error=explained, log=self._file(pod))

    def _log(self, pod: Any) -> bytes:
        log = self._api.log(_name(pod), CONTAINER)
        write(Path(self._file(pod)), log, self._scratch)
        return log

    def _file(self, pod: Any) -> str:
        """Where its log is kept, if it has one."""
        return str(self._logs / f"{_name(pod)}.log")


def _pending(pod: Any) -> _Waits:
    """What a pod waits for."""
    for status in _statuses(pod):
        waiting = (status.get("state") or {}).get("waiting") or {}
        reason = str(waiting.get("reason"))
        if reason in HOPELESS:
            pull = "Image" in reason
            return _Waits(
                f"waiting: {reason}",
                _explained(
                    f"its pod cannot start: {reason}: {waiting.get('message', '')}".rstrip(": "),
                    cause="the nodes may not pull from this registry, or do not reach it" if pull else "",
                    next_step="kubectl create secret docker-registry, for the namespace's default service account"
                    if pull
                    else f"kubectl describe pod {word(_name(pod))}",
                ),
            )
    if _phase(pod) == "Running":
        return _Waits("running")
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return _Waits(f"waiting for a node: {condition.get('message') or condition.get('reason')}")
    return _Waits("starting")


def _statuses(pod: Any) -> list[Any]:
    """What is said of the container of the suite, in a list; empty where nothing is."""
    return [status for status in pod["status"].get("containerStatuses") or () if status["name"] == CONTAINER]


def _name(pod: Any) -> str:
    """Its name, which names the file of its log. Raises ValueError for one that Kubernetes would not take."""
    name = str(pod["metadata"]["name"])
    if not NAME.fullmatch(name):
        raise ValueError(f"a pod is called {name[:80]!r}")
    return name


def _phase(pod: Any) -> str:
    return str(pod["status"].get("phase"))


def _ended(pod: Any) -> dict[str, Any]:
    """How the container ended; empty when it did not."""
    for status in _statuses(pod):
        return dict((status.get("state") or {}).get("terminated") or {})
    return {}


def _where(pod: Any) -> tuple[str, float, datetime.date]:
    """Node, seconds and day of a pod, as far as they are known."""
    ended = _ended(pod) if pod else {}
    now = datetime.datetime.now(datetime.UTC)
    began, finished = (
        datetime.datetime.fromisoformat(ended[key]) if ended.get(key) else now for key in ("startedAt", "finishedAt")
    )
    node = str(pod["spec"].get("nodeName", "")) if pod else ""
    return node, max(0.0, (finished - began).total_seconds()), finished.astimezone(datetime.UTC).date()


def _explained(what: str, *, cause: str = "", next_step: str = "") -> str:
    return str(errors.VettedError(what, cause=cause, next_step=next_step))
