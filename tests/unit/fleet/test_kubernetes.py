"""`vetted fleet --on kubernetes`, against a stand-in for an API server; what a pod runs is really run."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.base import machine
from builder.certify import certificate, judgement
from builder.fleet import kubernetes as cluster
from builder.image.build import Built
from builder.publish import registry
from tests.commands import Answer
from tests.conftest import BAD_RUN, GOOD_RUN, ROOT, TINY, Small
from tests.localhost import Response
from tests.unit.conftest import Command
from tests.unit.fleet.conftest import NAMESPACE, YESTERDAY, ApiServer, Fate, runs, status, terminated

HOW_TO = ROOT / "docs" / "how-to" / "fleet.md"
WHERE = ("--on", "kubernetes", "--image-registry", "registry.example/team/vetted")


@pytest.fixture
def fleet(
    small: Small,
    api: ApiServer,  # noqa: ARG001
    built: Built,  # noqa: ARG001
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Answer]:
    """The command, with a registry that has every image."""
    monkeypatch.setattr(registry, "manifest", lambda *_: b"{}")
    return lambda *more: command(small.root, "fleet", TINY, *WHERE, *more)


Fleet = Callable[..., Answer]


def pods(phase: str = "Pending", **more: Any) -> Fate:
    """A fate: a Job has one pod, in this phase, and no end."""
    return lambda server, job: server.pod(job, 0, phase, **more)


def failed(reason: str = "BackoffLimitExceeded", **more: Any) -> Fate:
    """A fate: the only pod of a Job has failed."""

    def fail(server: ApiServer, job: dict[str, Any]) -> None:
        server.pod(job, 0, "Failed", **more)
        server.end(job, "Failed", reason)

    return fail


def after(looks: int, begin: Fate, end: Fate) -> Fate:
    """A fate that changes after some looks."""
    seen = iter(range(looks))

    def change(server: ApiServer, job: dict[str, Any]) -> None:
        (begin if next(seen, None) is not None else end)(server, job)

    return change


# --- what becomes of a suite ---------------------------------------------------------------------------------------


def test_a_suite_in_a_pod_becomes_the_certificate_of_the_stack(
    small: Small, built: Built, api: ApiServer, fleet: Fleet, tmp_path: Path
) -> None:
    api.fate = runs(tmp_path / "nodes")
    answer = fleet()
    assert answer.code == 0, answer.out + answer.err
    assert f"{TINY}: certified on node-0, 90 s" in answer.out
    statement = certificate.read(certificate.path(small.project, TINY, "cpu", "kubernetes"))
    assert judgement.doubts(statement, judgement.terms(small.project, small.lock), built.image.manifest) == []
    assert statement.predicate.issued == YESTERDAY, "the day of the run, not that of the collection"
    assert statement.hardware == machine.hardware("cpu").hardware_class
    engine = statement.resource("engine").annotations or {}
    assert (engine["name"], engine["version"], engine["buildkit"]) == ("kubernetes", "v1.33.4-gke.1", "v0")
    assert api.of("jobs") == api.of("configmaps") == [], "what is kept is not left in the cluster"
    assert f"{TINY}-kubernetes.json" in answer.out


def test_a_red_suite_leaves_a_report_and_no_certificate(
    small: Small, api: ApiServer, fleet: Fleet, tmp_path: Path
) -> None:
    small.suite(BAD_RUN)
    api.fate = runs(tmp_path / "nodes")
    answer = fleet("--json")
    assert answer.code == 1
    assert answer.json[0]["doubts"][0] == "it is the report of a run that failed"
    assert certificate.read(Path(answer.json[0]["statement"])).predicate.issued is None
    assert not certificate.path(small.project, TINY, "cpu", "kubernetes").exists()


FORGED = GOOD_RUN.replace('end("beta")', 'end("beta", measurements=[{"name": "x"}])')


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (FORGED, "beta: its measurements are not those that the suite asks for"),
        ('print("hello")\n' + GOOD_RUN, "the suite's runner said something that is no event: 'hello'"),
        (GOOD_RUN.replace('say("finish")', ""), "the pod's log ends before the suite does"),
        (GOOD_RUN + "print('bad news', file=sys.stderr)\nsys.exit(7)\n", "exit code 7\nbad news"),
    ],
)
def test_what_a_pod_says_is_judged_and_not_trusted(
    small: Small, api: ApiServer, fleet: Fleet, tmp_path: Path, script: str, said: str
) -> None:
    small.suite(script)
    api.fate = runs(tmp_path / "nodes")
    answer = fleet("--json")
    assert answer.code == 1
    assert said in "\n".join(answer.json[0]["doubts"])
    if file := answer.json[0]["statement"]:
        assert certificate.read(Path(file)).predicate.issued is None, "a report has no date"
    assert not certificate.path(small.project, TINY, "cpu", "kubernetes").exists()


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (b"", "does not begin with its machine"),
        (b'{"cpu": "x", "cores": "many", "gpus": [], "kernel": "6"}\n', "does not begin with its machine"),
        (b'{"cpu": "\\u001b[31m", "cores": 2, "gpus": [], "kernel": "6"}\n', "ends before the suite does"),
        (b"\xff\xfe" * 100, "does not begin with its machine"),
    ],
)
def test_a_log_that_is_no_answer_is_an_error(api: ApiServer, fleet: Fleet, log: bytes, said: str) -> None:
    def ended(server: ApiServer, job: dict[str, Any]) -> None:
        server.pod(job, 0, "Succeeded", state=terminated())
        server.logs[f"{job['metadata']['name']}-0"] = log
        server.end(job, "Complete")

    api.fate = ended
    answer = fleet()
    assert answer.code == 1 and said in answer.out and "next: " in answer.out
    assert "\x1b[31m" not in answer.out


def test_a_node_that_ran_another_image_proves_nothing(api: ApiServer, fleet: Fleet, tmp_path: Path) -> None:
    whole = runs(tmp_path / "nodes")

    def other(server: ApiServer, job: dict[str, Any]) -> None:
        whole(server, job)
        for pod in server.of("pods"):
            pod["status"]["containerStatuses"][0]["imageID"] = f"registry.example/x@sha256:{'0' * 64}"

    api.fate = other
    answer = fleet()
    assert answer.code == 1 and "the node ran another image" in answer.out


# --- what becomes of a pod -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fate", "said", "then"),
    [
        (
            pods(state={"waiting": {"reason": "ImagePullBackOff", "message": "401 Unauthorized"}}),
            "its pod cannot start: ImagePullBackOff: 401 Unauthorized", "kubectl create secret docker-registry",
        ),
        (
            failed(reason="Evicted", message="The node was low on resource: memory."),
            "Evicted, no exit code", "kubectl describe nodes",
        ),
        (failed(reason="DeadlineExceeded"), "DeadlineExceeded", "--minutes"),
        (failed(state=terminated(137, "OOMKilled")), "OOMKilled, exit code 137", "--memory"),
        (lambda server, job: server.end(job, "Failed", "BackoffLimitExceeded"), "its Job failed", ""),
        (lambda server, job: server.end(job, "Complete"), "its pod is gone, and its answer with it", "run this again"),
    ],
)  # fmt: skip
def test_a_pod_that_cannot_answer_says_why_and_what_to_do(
    api: ApiServer, fleet: Fleet, fate: Fate, said: str, then: str
) -> None:
    api.fate = fate
    api.faults["GET", "log"] = status(400, "container is not there")
    answer = fleet()
    assert answer.code == 1
    assert said in answer.out and then in answer.out
    assert api.of("jobs") == [], "a Job that cannot end is not left behind"


def test_a_registry_that_was_away_for_a_moment_is_forgiven(
    api: ApiServer, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "STUCK", 2)
    away, there = pods(state={"waiting": {"reason": "ErrImagePull"}}), pods("Running")
    api.fate = after(1, away, after(1, there, after(1, away, runs(tmp_path / "nodes"))))
    assert fleet().code == 0
    api.fate = after(2, away, runs(tmp_path / "later"))
    assert "its pod cannot start: ErrImagePull" in fleet().out


def test_a_pod_that_lost_its_node_is_not_the_answer(api: ApiServer, fleet: Fleet, tmp_path: Path) -> None:
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}

    def lose(server: ApiServer, job: dict[str, Any]) -> None:
        server.pod(job, 1, "Failed", state=terminated(137, "Error"), conditions=[disrupted])

    api.fate = after(2, lose, runs(tmp_path / "nodes"))
    answer = fleet()
    assert answer.code == 0, answer.out + answer.err
    assert "on node-0" in answer.out


def test_a_pod_that_the_cluster_refuses_says_so_and_a_quota_is_waited_for(
    api: ApiServer, fleet: Fleet, tmp_path: Path
) -> None:
    event = {
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Job"}, "reason": "FailedCreate",
        "message": 'pods "x" is forbidden: violates PodSecurity "baseline:latest"',
    }  # fmt: skip
    api.events = [event]
    answer = fleet()
    assert answer.code == 1
    assert "violates PodSecurity" in answer.out and "pod-security.kubernetes.io/enforce=privileged" in answer.out
    api.events = [event | {"message": "pods is forbidden: exceeded quota: team"}]
    api.fate = after(2, lambda *_: None, runs(tmp_path / "nodes"))
    answer = fleet()
    assert answer.code == 0, answer.out
    assert "exceeded quota: team" in answer.err


def test_what_is_waited_for_is_shown(api: ApiServer, fleet: Fleet, tmp_path: Path) -> None:
    unschedulable = {"type": "PodScheduled", "status": "False", "message": "0/4 nodes are available: 4 Insufficient"}
    waits = after(2, pods(conditions=[unschedulable]), after(2, pods("Running"), runs(tmp_path / "nodes")))

    def queued(server: ApiServer, job: dict[str, Any]) -> None:
        waits(server, job)
        job["spec"]["suspend"] = False  # as Kueue does when there is room

    api.fate = queued
    answer = fleet("--queue", "team")
    assert answer.code == 0, answer.out + answer.err
    shown = [line for line in answer.err.splitlines() if line.startswith("1 ") or " 1 " in line]
    assert "waiting for a node: 0/4 nodes are available" in shown[0] and "running" in shown[1], answer.err


# --- what becomes of the API server --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "answered", "code", "said"),
    [
        (("POST", "jobs"), status(403, "jobs.batch is forbidden"), 1, "kubectl auth can-i --list"),
        (("POST", "configmaps"), status(404, 'namespaces "x" not found'), 1, f"kubectl create namespace {NAMESPACE}"),
        (("POST", "jobs"), status(401, "Unauthorized"), 1, "kubectl auth whoami"),
        (("POST", "jobs"), status(422, "spec.suspend: Invalid value"), 1, "--manifest -"),
        (("POST", "jobs"), Response(502, b"<html>Bad Gateway</html>"), 5, "it restarts, or is overloaded"),
        (("GET", "pods"), status(403, "pods is forbidden"), 1, "kubectl auth can-i --list"),
    ],
)
def test_a_refusal_names_its_cause_and_the_next_command(
    api: ApiServer, fleet: Fleet, fault: tuple[str, str], answered: Response, code: int, said: str
) -> None:
    api.faults[fault] = answered
    answer = fleet()
    assert answer.code == code
    assert "usual cause: " in answer.err and "next: " in answer.err and said in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("kind", ["version", "jobs", "pods"])
@pytest.mark.parametrize(
    "body", [b"<html>login</html>", b"", b"\xff", b"[]", b"{}", b'{"items": 3}', b'{"items": [{}]}']
)
def test_an_answer_that_is_not_of_kubernetes_is_said_to_be_none(
    api: ApiServer, fleet: Fleet, kind: str, body: bytes
) -> None:
    api.faults["GET", kind] = Response(200, body, {"Content-Type": "application/json"})
    answer = fleet()
    assert answer.code == 1
    assert "something answers that is no API server" in answer.err and "next: kubectl cluster-info" in answer.err


def test_while_the_api_server_is_away_the_jobs_are_waited_for(api: ApiServer, fleet: Fleet, tmp_path: Path) -> None:
    finish = runs(tmp_path / "nodes")
    back = iter(range(3))
    serve = api.respond

    def away(path: str, headers: Any) -> Response:
        if "/pods?" in path and next(back, None) is not None:
            return status(503, "etcd is electing a leader")
        return serve(path, headers)

    api.respond, api.fate = away, finish  # type: ignore[method-assign]
    answer = fleet()
    assert answer.code == 0, answer.out + answer.err
    assert "the API server is busy or ill" in answer.err


def test_without_a_server_the_next_command_is_named(api: ApiServer, fleet: Fleet) -> None:
    api.close()
    answer = fleet()
    assert answer.code == 5
    assert "the API server does not answer" in answer.err and "kubectl cluster-info" in answer.err


def test_an_interrupted_command_takes_up_its_jobs(
    api: ApiServer, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    api.fate = pods("Running")
    monkeypatch.setattr(time, "sleep", interrupt)
    fleet()
    (job,) = api.of("jobs")
    monkeypatch.undo()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr(registry, "manifest", lambda *_: b"{}")
    started: list[str] = []

    def once(server: ApiServer, there: dict[str, Any]) -> None:
        started.append(there["metadata"]["uid"])
        runs(tmp_path / "nodes")(server, there)

    api.fate = once
    assert fleet().code == 0
    assert started == [job["metadata"]["uid"]]


def test_a_config_map_that_is_another_is_not_run(api: ApiServer, fleet: Fleet, tmp_path: Path) -> None:
    api.faults["POST", "jobs"] = status(403, "no")
    fleet()
    (there,) = api.of("configmaps")
    there["data"]["smoke.__main__.py"] = "print('all is well')"
    api.faults.clear()
    api.fate = runs(tmp_path / "nodes")
    answer = fleet()
    assert answer.code == 1 and "is there, and is not the suite" in answer.err
    assert api.of("jobs") == []


def test_a_job_that_may_not_be_deleted_does_not_cost_the_answer(api: ApiServer, fleet: Fleet, tmp_path: Path) -> None:
    api.fate = runs(tmp_path / "nodes")
    api.faults["DELETE", "jobs"] = status(403, "no")
    answer = fleet()
    assert answer.code == 0 and "kubectl delete job,configmap vetted-tiny-" in answer.err


def test_a_job_that_somebody_deleted_is_an_error(api: ApiServer, fleet: Fleet) -> None:
    api.fate = after(1, pods("Running"), lambda server, _: server.objects.clear())
    answer = fleet()
    assert answer.code == 1 and "was deleted by somebody else" in answer.out


@pytest.mark.parametrize(("minor", "code"), [("25", 4), ("26+", 0)])
def test_a_server_that_is_too_old_is_refused(
    api: ApiServer, fleet: Fleet, minor: str, code: int, tmp_path: Path
) -> None:
    api.version = ("1", minor, f"v1.{minor}.0")
    api.fate = runs(tmp_path / "nodes")
    answer = fleet()
    assert answer.code == code
    assert ("a fleet needs 1.26" in answer.err) == bool(code)


def test_the_role_of_the_how_to_is_what_is_asked_for(api: ApiServer, fleet: Fleet, tmp_path: Path) -> None:
    api.faults["POST", "jobs"] = status(403, "no")
    fleet()
    del api.faults["POST", "jobs"]
    api.fate = after(2, lambda *_: None, runs(tmp_path / "nodes"))  # events, a ConfigMap that is there, and to the end
    assert fleet().code == 0
    (text,) = re.findall(r"^```yaml\n(.*?)^```", HOW_TO.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    rules = yaml.safe_load(text)["rules"]
    given = {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert given == api.asked


# --- before anything is asked --------------------------------------------------------------------------------------


def test_an_image_that_the_registry_lacks_is_pushed_by_its_digest(
    built: Built, api: ApiServer, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed: list[tuple[str, str]] = []
    monkeypatch.setattr(registry, "manifest", lambda *_: None)
    monkeypatch.setattr(registry, "push", lambda where, _, digest: pushed.append((str(where), digest)))
    api.fate = runs(tmp_path / "nodes")
    assert fleet().code == 0
    assert pushed == [("registry.example/team/vetted", built.image.manifest)]


def test_without_the_image_or_the_client_or_a_cluster_one_is_told_how_to_get_them(
    small: Small, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    answer = command(small.root, "fleet", TINY, *WHERE)
    assert answer.code == 1 and f"next: vetted build {TINY}" in answer.err
    request.getfixturevalue("built")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "kubernetes", None)
        answer = command(small.root, "fleet", TINY, *WHERE)
    assert answer.code == 4 and "pip install 'vetted[kubernetes]'" in answer.err
    pytest.importorskip("kubernetes")
    for content in (None, "", "no: [yaml", "current-context: nowhere\ncontexts: []\n"):
        if content is not None:
            (tmp_path / "config").write_text(content)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        answer = command(small.root, "fleet", TINY, *WHERE)
        assert answer.code == 3, (content, answer.err)
        assert "no cluster is configured" in answer.err and "kubectl cluster-info" in answer.err


@pytest.mark.parametrize(
    "argv", [["--on", "kubernetes"], ["--on", "local", "--manifest", "-"], ["--on", "slurm", *WHERE[2:]]]
)
def test_options_that_do_not_go_together_are_refused(small: Small, command: Command, argv: list[str]) -> None:
    assert command(small.root, "fleet", TINY, *argv).code == 2
