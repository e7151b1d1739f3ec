"""`vetted fleet --on kubernetes`: an API server that refuses, is away, or is none; and what is asked before it."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.image.build import Built
from builder.publish import registry
from tests.conftest import ROOT, TINY, Small
from tests.localhost import Response
from tests.unit.conftest import Command
from tests.unit.fleet.conftest import (
    NAMESPACE,
    WHERE,
    ApiServer,
    Fleet,
    after,
    pods,
    runs,
    status,
)

HOW_TO = ROOT / "docs" / "how-to" / "fleet.md"


@pytest.mark.parametrize(
    ("fault", "answered", "code", "message"),
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
    api: ApiServer, fleet: Fleet, fault: tuple[str, str], answered: Response, code: int, message: str
) -> None:
    api.faults[fault] = answered
    answer = fleet()
    assert answer.code == code
    assert "usual cause: " in answer.err and "next: " in answer.err and message in answer.err
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
    rights = {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert rights == api.requests


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
