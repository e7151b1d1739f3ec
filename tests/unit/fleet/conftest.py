"""A stand-in for a Kubernetes API server, on loopback. It keeps Jobs, and answers in the forms of Kubernetes' API.

It is no API server: nothing is validated, scheduled or started. What becomes of a Job's pods is said by the test.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from builder.certify import certificate
from builder.fleet import kubernetes as cluster
from builder.image.build import Built
from builder.publish import registry
from tests.commands import Answer
from tests.conftest import TINY, Small
from tests.localhost import Response, Server
from tests.registry.conftest import make_image
from tests.unit.conftest import Command

NAMESPACE = "research"
WHERE = ("--on", "kubernetes", "--image-registry", "registry.example/team/vetted")
YESTERDAY = certificate.today() - datetime.timedelta(days=1)
BEGAN, ENDED = f"{YESTERDAY}T08:00:00Z", f"{YESTERDAY}T08:01:30Z"
Fate = Callable[["ApiServer", dict[str, Any]], None]
Fleet = Callable[..., Answer]


class ApiServer(Server):
    """`fate`: what becomes of a Job, at each look at it. `faults`: answers by method and kind."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.logs: dict[str, bytes] = {}
        self.events: list[dict[str, Any]] = []
        self.fate: Fate = lambda *_: None
        self.faults: dict[tuple[str, str], Response] = {}
        self.version = ("1", "33+", "v1.33.4-gke.1")
        self.requests: set[tuple[str, str]] = set()  # verb and resource, as a Role has them

    def respond(self, path: str, headers: Mapping[str, str]) -> Response:  # noqa: ARG002
        parts = path.partition("?")[0].split("/")
        if parts == ["version"]:
            if fault := self.faults.get(("GET", "version")):
                return fault
            major, minor, version = self.version
            others = ("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform")
            return _json(200, {"major": major, "minor": minor, "gitVersion": version, **dict.fromkeys(others, "x")})
        kind, *rest = parts[parts.index("namespaces") + 2 :]
        self.requests.add(("get" if rest else "list", f"{kind}/log" if "log" in rest else kind))
        if fault := self.faults.get(("GET", "log" if "log" in rest else kind)):
            return fault
        if rest[1:] == ["log"]:
            log = self.logs.get(rest[0])
            return status(404, "no log") if log is None else Response(200, log, {"Content-Type": "text/plain"})
        if rest:
            return _json(200, self.objects[kind, rest[0]])
        if kind == "jobs":
            for job in self.of("jobs"):
                self.fate(self, job)
        return _json(200, {"metadata": {}, "items": self.events if kind == "events" else self.of(kind)})

    def change(self, method: str, path: str, body: bytes) -> Response:
        parts = path.partition("?")[0].split("/")
        assert parts[parts.index("namespaces") + 1] == NAMESPACE
        kind, *rest = parts[parts.index("namespaces") + 2 :]
        self.requests.add(({"POST": "create", "DELETE": "delete"}[method], kind))
        if fault := self.faults.get((method, kind)):
            return fault
        if method == "DELETE":
            del self.objects[kind, rest[0]]
            return status(200, "deleted")
        document = json.loads(body)
        name = document["metadata"]["name"]
        if (kind, name) in self.objects:
            return status(409, f'{kind} "{name}" already exists')
        document["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": BEGAN}
        self.objects[kind, name] = document | ({"status": {}} if kind == "jobs" else {})
        return _json(201, self.objects[kind, name])

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [value for (other, _), value in self.objects.items() if other == kind]

    # --- what becomes of a Job ---

    def pod(self, job: dict[str, Any], number: int, phase: str, **more: Any) -> None:
        """Put a pod of a Job there. `state`: of its container."""
        name = f"{job['metadata']['name']}-{number}"
        template = job["spec"]["template"]
        image = str(template["spec"]["containers"][0]["image"])
        container = {
            "name": "suite", "image": image, "imageID": more.pop("ran", image), "ready": False, "restartCount": 0,
            "state": more.pop("state", {}),
        }  # fmt: skip
        self.objects["pods", name] = {
            "metadata": {"name": name, "labels": template["metadata"]["labels"],
                         "creationTimestamp": f"{YESTERDAY}T08:00:{number:02}Z"},
            "spec": {"containers": [{"name": "suite"}], "nodeName": f"node-{number}"},
            "status": {"phase": phase, "containerStatuses": [container], **more},
        }  # fmt: skip

    def end(self, job: dict[str, Any], how: str, reason: str = "") -> None:
        condition = {"type": how, "status": "True", "reason": reason, "message": ""}
        job["status"] = {"conditions": [condition]}


def _json(code: int, content: Any) -> Response:
    return Response(code, json.dumps(content).encode(), {"Content-Type": "application/json"})


def status(code: int, message: str) -> Response:
    """As Kubernetes refuses."""
    content = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return _json(code, content)


def terminated(code: int = 0, reason: str = "Completed", message: str = "") -> dict[str, Any]:
    return {
        "terminated": {
            "exitCode": code, "reason": reason, "message": message, "startedAt": BEGAN, "finishedAt": ENDED,
        }
    }  # fmt: skip


def kubelet(
    folder: Path, config_map: dict[str, Any], job: dict[str, Any], privileges: Sequence[str] = ()
) -> tuple[int, bytes, str]:
    """Run the command of a pod as its node would: files, command, log. Exit code, log, and termination message.

    The file of the message, and /tmp, are below `folder`. `privileges`: a command that leaves it those of a container;
    then Python is Debian's, as in an image. Without it, Python is this one, and the probes have no user of their own.
    """
    (container,) = job["spec"]["template"]["spec"]["containers"]
    volume = job["spec"]["template"]["spec"]["volumes"][0]["configMap"]
    (folder / "tmp").mkdir(parents=True)
    data = folder / "..2026_11_20"  # as a kubelet mounts a ConfigMap: a folder with the files, and links to it
    for item in volume["items"]:
        (data / item["path"]).parent.mkdir(parents=True, exist_ok=True)
        (data / item["path"]).write_text(config_map["data"][item["key"]])
    (folder / "..data").symlink_to(data.name)
    for path in data.iterdir():
        (folder / path.name).symlink_to(f"..data/{path.name}")
    message = folder / "termination-log"
    python = "/usr/bin/python3" if privileges else sys.executable
    argv = [
        python if word.startswith(("/usr/bin/python", "/opt/venv/bin/python")) else
        str(message) if word == "/dev/termination-log" else word.replace("/vetted", str(folder), 1)
        for word in container["command"]
    ]  # fmt: skip
    if not privileges:
        del argv[argv.index("--user") : argv.index("--user") + 2]
    environment = {**os.environ, **{entry["name"]: entry["value"] for entry in container["env"]}}
    environment["TMPDIR"] = str(folder / "tmp")
    argv = [*privileges, *argv]
    done = subprocess.run(argv, cwd=folder / "tmp", env=environment, capture_output=True, check=False)
    assert done.stderr == b""
    return done.returncode, done.stdout, message.read_text()


@pytest.fixture
def built(small: Small) -> Built:
    return make_image(small)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ApiServer]:
    """A server, and a kubeconfig for it."""
    pytest.importorskip("kubernetes")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    server = ApiServer()
    context = {"cluster": "c", "user": "u", "namespace": NAMESPACE}
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server.root}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "c", "context": context}],
    }  # fmt: skip
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr(cluster, "POLL", 0.0)
    monkeypatch.setattr(cluster, "STUCK", 1)
    yield server
    server.close()


def runs(folder: Path) -> Fate:
    """A fate: at the first look a Job runs in one pod, to its end."""

    def run(server: ApiServer, job: dict[str, Any]) -> None:
        if job["status"] or job["spec"].get("suspend"):
            return
        name = job["metadata"]["name"]
        code, log, message = kubelet(folder / name, server.objects["configmaps", name], job)
        server.logs[f"{name}-0"] = log
        server.pod(job, 0, "Failed" if code else "Succeeded", state=terminated(code, "Error" if code else "", message))
        server.end(job, "Failed" if code else "Complete", "BackoffLimitExceeded" if code else "")

    return run


@pytest.fixture
def fleet(
    small: Small,
    api: ApiServer,  # noqa: ARG001
    built: Built,  # noqa: ARG001
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> Fleet:
    """The command, with a registry that has every image."""
    monkeypatch.setattr(registry, "manifest", lambda *_: b"{}")
    return lambda *more: command(small.root, "fleet", TINY, *WHERE, *more)


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
