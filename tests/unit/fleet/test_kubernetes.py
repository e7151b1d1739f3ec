"""`vetted fleet --on kubernetes`: what becomes of suites and pods. What a pod runs is really run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builder.base import machine
from builder.certify import certificate, judgement
from builder.fleet import kubernetes as cluster
from builder.image.build import Built
from tests.conftest import BAD_RUN, GOOD_RUN, TINY, Small
from tests.unit.fleet.conftest import (
    YESTERDAY,
    ApiServer,
    Fate,
    Fleet,
    after,
    failed,
    pods,
    runs,
    status,
    terminated,
)

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
    ("script", "message"),
    [
        (FORGED, "beta: its measurements are not those that the suite asks for"),
        ('print("hello")\n' + GOOD_RUN, "the suite's runner said something that is no event: 'hello'"),
        (GOOD_RUN.replace('say("finish")', ""), "the pod's log ends before the suite does"),
        (GOOD_RUN + "print('bad news', file=sys.stderr)\nsys.exit(7)\n", "exit code 7\nbad news"),
    ],
)
def test_what_a_pod_says_is_judged_and_not_trusted(
    small: Small, api: ApiServer, fleet: Fleet, tmp_path: Path, script: str, message: str
) -> None:
    small.suite(script)
    api.fate = runs(tmp_path / "nodes")
    answer = fleet("--json")
    assert answer.code == 1
    assert message in "\n".join(answer.json[0]["doubts"])
    if file := answer.json[0]["statement"]:
        assert certificate.read(Path(file)).predicate.issued is None, "a report has no date"
    assert not certificate.path(small.project, TINY, "cpu", "kubernetes").exists()


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (b"", "does not begin with its machine"),
        (b'{"cpu": "x", "cores": "many", "gpus": [], "kernel": "6"}\n', "does not begin with its machine"),
        (b'{"cpu": "\\u001b[31m", "cores": 2, "gpus": [], "kernel": "6"}\n', "ends before the suite does"),
        (b"\xff\xfe" * 100, "does not begin with its machine"),
    ],
)
def test_a_log_that_is_no_answer_is_an_error(api: ApiServer, fleet: Fleet, log: bytes, message: str) -> None:
    def ended(server: ApiServer, job: dict[str, Any]) -> None:
        server.pod(job, 0, "Succeeded", state=terminated())
        server.logs[f"{job['metadata']['name']}-0"] = log
        server.end(job, "Complete")

    api.fate = ended
    answer = fleet()
    assert answer.code == 1 and message in answer.out and "next: " in answer.out
    assert "\n  log: .vetted/fleet/logs/" in answer.out
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
    ("fate", "message", "then"),
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
    api: ApiServer, fleet: Fleet, fate: Fate, message: str, then: str
) -> None:
    api.fate = fate
    api.faults["GET", "log"] = status(400, "container is not there")
    answer = fleet()
    assert answer.code == 1
    assert message in answer.out and then in answer.out
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
