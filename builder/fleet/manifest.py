"""Units as Kubernetes takes them: for each a Job, and a ConfigMap with the suite and the request.

All pods of a Job run one image. A unit is one image, so it is one Job; an indexed Job has nothing to number here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from builder.base import sources
from builder.base.project import sha256
from builder.certify import engine, suite
from builder.fleet.unit import Unit
from builder.image.build import Built
from builder.lock.lockfile import Lock

ENGINE = "kubernetes"
MANAGED = {"app.kubernetes.io/managed-by": "vetted"}
CONTAINER = "suite"
JOB = "dev.vetted.job"  # the label of a pod with the name of its Job
SELECTOR = ",".join(f"{key}={value}" for key, value in MANAGED.items())
GPU = "nvidia.com/gpu"
GPU_LABEL = "nvidia.com/gpu.product"  # NVIDIA's GPU feature discovery puts it on nodes
QUEUE = "kueue.x-k8s.io/queue-name"
LOG = "/dev/termination-log"  # the kubelet shows its last 4096 bytes in the status of the pod
SCRIPT = Path(__file__).parent / "scripts" / "pod.py"


@dataclass(frozen=True)
class Pods:
    """What each pod asks for. `queue`: Kueue's, "" for none."""

    queue: str = ""
    cpus: int = 2
    memory_gib: int = 32
    gpu_label: str = GPU_LABEL


@dataclass(frozen=True)
class Work:
    """A unit and its image. `reference`: HOST/PATH@sha256:… of it, as the nodes pull it."""

    unit: Unit
    lock: Lock
    built: Built
    reference: str
    minutes: int


@dataclass(frozen=True)
class Job:
    """What a unit is in a cluster. Its name follows from its content: the same unit is found again."""

    work: Work
    config_map: dict[str, Any]
    job: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.job["metadata"]["name"])


def job(work: Work, pods: Pods, root: Path) -> Job:
    """The Job of a unit, without a namespace. `root`: the folder above a copy of the suite."""
    files = {f"smoke.{str(file).replace('/', '.')}": Path("smoke", file) for file in sources.files(root / "smoke")}
    request = suite.Request(
        work.lock.stack.device, work.lock.versions, memory_mib=suite.usable_mib(pods.memory_gib * 1024)
    )
    data = {key: (root / file).read_text() for key, file in files.items()}
    data |= {"pod.py": SCRIPT.read_text(), "request.json": request.to_json() + "\n"}
    paths = {key: str(file) for key, file in files.items()} | {"pod.py": "pod.py", "request.json": "request.json"}
    content = json.dumps([data, _spec(work, pods, paths, "")], sort_keys=True)
    # A name of at most 63 characters, in lower case: that of the pod is made from it.
    title = re.sub(r"[^a-z0-9]+", "-", work.unit.name.lower())[:40].strip("-")
    name = f"vetted-{title}-{sha256(content.encode()).removeprefix('sha256:')[:10]}"
    metadata = {"name": name, "labels": dict(MANAGED), "annotations": {"dev.vetted.unit": work.unit.name}}
    queue = {"labels": {**MANAGED, QUEUE: pods.queue}} if pods.queue else {}
    return Job(
        work,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data},
        {
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {**metadata, **queue},
            "spec": _spec(work, pods, paths, name),
        },
    )  # fmt: skip


def _spec(work: Work, pods: Pods, paths: Mapping[str, str], name: str) -> dict[str, Any]:
    """The Job: its pod starts again, uncounted, when its node fails or somebody else needs the place."""
    return {
        **({"suspend": True} if pods.queue else {}),  # Kueue starts it
        "backoffLimit": 0,
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "template": {"metadata": {"labels": {**MANAGED, JOB: name}}, "spec": _pod(work, pods, paths, name)},
    }


def _pod(work: Work, pods: Pods, paths: Mapping[str, str], name: str) -> dict[str, Any]:
    """The same as `vetted certify` has Docker do (certify/engine.py), in a pod without access to the API."""
    unit, memory = work.unit, f"{pods.memory_gib}Gi"
    # The usual taint of nodes with GPUs.
    on_gpu = {"tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]}
    python = work.lock.stack.python
    script = [f"/usr/bin/python{python}", "-I", "-S", "/vetted/pod.py", "/vetted/request.json", LOG]
    items = [{"key": key, "path": path} for key, path in sorted(paths.items())]
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # variables of services could be taken for those of torchrun
        "activeDeadlineSeconds": work.minutes * 60,
        "nodeSelector": {"kubernetes.io/arch": "amd64"} | ({pods.gpu_label: unit.gpu} if unit.gpus else {}),
        **(on_gpu if unit.gpus else {}),
        "containers": [
            {
                "name": CONTAINER,
                "image": work.reference,
                "command": [*script, *engine.inside(python)],
                "workingDir": "/tmp",
                "env": [
                    {"name": "TMPDIR", "value": "/tmp"},
                    *([{"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}] if unit.gpus else []),
                ],
                "terminationMessagePath": LOG,
                "securityContext": {
                    "runAsUser": 0,
                    "runAsGroup": 0,
                    "readOnlyRootFilesystem": True,
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"], "add": list(engine.SUPERVISOR)},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "resources": {
                    "requests": {"cpu": str(pods.cpus), "memory": memory},
                    "limits": {"memory": memory} | ({GPU: str(unit.gpus)} if unit.gpus else {}),
                },
                "volumeMounts": [
                    {"name": "suite", "mountPath": "/vetted", "readOnly": True},
                    {"name": "tmp", "mountPath": "/tmp"},
                    {"name": "shm", "mountPath": "/dev/shm"},
                ],
            }
        ],
        "volumes": [
            {"name": "suite", "configMap": {"name": name, "items": items}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi" if unit.gpus else "64Mi"}},
        ],
    }


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Text of several lines as people read it; no anchors."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def to_yaml(jobs: Iterable[Job], namespace: str = "") -> str:
    """The Jobs as a file for `kubectl apply`, without a namespace unless one is named."""
    documents = []
    for each in jobs:
        for document in (each.config_map, each.job):
            place = {"namespace": namespace} if namespace else {}
            documents.append({**document, "metadata": {**document["metadata"], **place}})
    return str(yaml.dump_all(documents, Dumper=_Dumper, explicit_start=True, sort_keys=False, allow_unicode=True))
