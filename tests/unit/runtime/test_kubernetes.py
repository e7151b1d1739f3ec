"""The examples for Kubernetes: what they mount, and that a run on several nodes differs from one in nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from runtime import verdict
from runtime.config import advisories
from runtime.train import nodes
from runtime.train.nodes import Nodes
from tests.conftest import ROOT

EXAMPLES = ROOT / "examples" / "kubernetes"
FIELD = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def pod(name: str) -> dict[str, Any]:
    """The pod of an example."""
    job = documents(name)[-1]["spec"]
    if "mlPolicy" in job:
        (replicated,) = job["template"]["spec"]["replicatedJobs"]
        job = replicated["template"]["spec"]
    spec: dict[str, Any] = job["template"]["spec"]
    return spec


def environment(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize("name", ["train.yaml", "nodes.yaml", "trainjob.yaml"])
def test_all_that_a_run_needs_is_mounted_from_what_storage_yaml_claims(name: str) -> None:
    spec = pod(name)
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    (train,) = spec["containers"]
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in train["volumeMounts"]}
    claims = [document["metadata"]["name"] for document in documents("storage.yaml")]
    claimed = (volume.get("persistentVolumeClaim", {}).get("claimName") for volume in mounts.values())
    used = [claim for claim in claimed if claim]
    assert sorted(used) == sorted(claims)
    assert {"/here", "/data", "/cache", "/runs", "/run/vetted", "/run/secrets", "/tmp", "/dev/shm"} == set(mounts)
    # The verdict and the certificates lie as the runtime looks for them.
    paths = [item["path"] for item in mounts[f"/{verdict.FOLDER}"]["configMap"]["items"]]
    assert paths[:2] == [verdict.VERDICT, advisories.FILE]
    assert {Path(path).parent.name for path in paths[2:]} == {verdict.CERTIFICATES}
    cached = environment(train)
    assert cached["HF_HUB_CACHE"].startswith("/cache/") and cached["HF_DATASETS_CACHE"].startswith("/cache/")
    assert re.findall(r"\$\{(\w+)\}", str(documents(name))).count("VETTED_IMAGE") >= 4


def test_a_pod_of_several_nodes_is_the_pod_of_one() -> None:
    single, several, kubeflow = pod("train.yaml"), pod("nodes.yaml"), pod("trainjob.yaml")
    assert several.pop("subdomain") == documents("nodes.yaml")[0]["metadata"]["name"]
    added = [entry for entry in several["containers"][0]["env"] if entry not in single["containers"][0]["env"]]
    assert [entry["name"] for entry in added] == ["NNODES", "NODE_RANK", "MASTER_ADDR"]
    several["containers"][0]["env"] = single["containers"][0]["env"]
    assert several == single
    job = documents("trainjob.yaml")[0]["spec"]["trainer"]
    assert (job["command"], job["args"]) == (
        single["containers"][0].pop("command"),
        single["containers"][0].pop("args"),
    )
    assert job["resourcesPerNode"] == single["containers"][0]["resources"]
    # Kubeflow overrides the container of this name.
    assert (single["containers"][0].pop("name"), kubeflow["containers"][0].pop("name")) == ("train", "node")
    assert kubeflow == single


def test_the_pods_of_an_indexed_job_are_the_nodes_of_a_run() -> None:
    service, job = documents("nodes.yaml")
    spec, name = job["spec"], job["metadata"]["name"]
    assert (spec["completionMode"], spec["completions"], spec["backoffLimit"]) == ("Indexed", spec["parallelism"], 0)
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    variables = environment(spec["template"]["spec"]["containers"][0])
    assert variables.pop("NODE_RANK") == {"fieldRef": {"fieldPath": FIELD}}
    # Kubernetes names the pod with this index so, and the service makes an address of it.
    address = f"{name}-0.{service['metadata']['name']}"
    expected = Nodes(spec["completions"], 1, address, 29500)
    assert nodes.of(lambda _: None, {**variables, "NODE_RANK": "1"}) == expected


@pytest.mark.parametrize("name", ["nodes.yaml", "trainjob.yaml"])
def test_kueue_finds_the_queue(name: str) -> None:
    (queue,) = [
        document["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
        for document in documents(name)
        if "kueue.x-k8s.io/queue-name" in document["metadata"].get("labels", {})
    ]
    assert queue == "vetted"
