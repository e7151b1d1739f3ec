"""The Jobs of a fleet as Kubernetes gets them, and what the first process of a pod does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.base import machine, sources
from builder.base.project import Project
from builder.certify import engine
from builder.fleet import manifest
from builder.fleet.manifest import Pods, Work
from builder.fleet.unit import Unit
from builder.image.build import Built
from tests.conftest import TINY, Small
from tests.unit.conftest import Command

REPOSITORY = "registry.example/team/vetted"
WHERE = ("--on", "kubernetes", "--image-registry", REPOSITORY)


def work(small: Small, built: Built, gpu: str = "", gpus: int = 0) -> Work:
    return Work(Unit(TINY, "kubernetes", gpu, gpus), small.lock, built, f"{REPOSITORY}@{built.image.manifest}", 30)


@pytest.fixture
def root(small: Small, tmp_path: Path) -> Path:
    sources.copy(small.project.smoke, tmp_path / "suite")
    return tmp_path / "suite"


def test_a_pod_has_no_more_rights_than_a_container_of_certify(small: Small, built: Built, root: Path) -> None:
    job = manifest.job(work(small, built), Pods(), root).job
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    docker = engine.in_image(root, "label", "image", small.lock.stack.python, "cpu", 1)
    capabilities = [word.removeprefix("--cap-add=") for word in docker if word.startswith("--cap-add=")]
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": capabilities}
    assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"] and "--read-only" in docker
    assert not pod["automountServiceAccountToken"]
    assert container["command"][-len(engine.inside("3.11")) :] == engine.inside(small.lock.stack.python)
    assert container["image"] == f"{REPOSITORY}@{built.image.manifest}"
    assert "suspend" not in job["spec"] and manifest.QUEUE not in job["metadata"]["labels"]
    assert pod["activeDeadlineSeconds"] == 1800


def test_gpus_and_a_queue_are_asked_for_as_kubernetes_and_kueue_want_it(small: Small, built: Built, root: Path) -> None:
    pods = Pods(queue="team", cpus=8, memory_gib=64, gpu_label="cloud.google.com/gke-accelerator")
    job = manifest.job(work(small, built, "nvidia-h200-141gb", 2), pods, root)
    pod = job.job["spec"]["template"]["spec"]
    assert job.job["metadata"]["labels"][manifest.QUEUE] == "team" and job.job["spec"]["suspend"] is True
    assert pod["nodeSelector"]["cloud.google.com/gke-accelerator"] == "nvidia-h200-141gb"
    assert pod["containers"][0]["resources"] == {
        "requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"memory": "64Gi", "nvidia.com/gpu": "2"},
    }  # fmt: skip
    assert pod["tolerations"][0]["key"] == "nvidia.com/gpu"
    request = json.loads(job.config_map["data"]["request.json"])
    assert request["memory_mib"] == 64 * 1024 - 2048 and request["distributions"] == {"tiny-lib": "1.0"}


def test_a_name_follows_from_what_is_run(small: Small, built: Built, root: Path) -> None:
    names = {
        manifest.job(work(small, built, gpu, gpus), pods, root).name
        for gpu, gpus in (("", 0), ("H200_" * 30, 1), ("a100", 1), ("a100", 2))
        for pods in (Pods(), Pods(cpus=4), Pods())
    }
    assert len(names) == 8
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) and len(name) <= 57 for name in names)
    before = manifest.job(work(small, built), Pods(), root)
    (root / "smoke" / "more.py").write_text("")
    after = manifest.job(work(small, built), Pods(), root)
    assert before.name != after.name and after.config_map["metadata"]["name"] == after.name


def test_the_whole_suite_fits_into_a_config_map(small: Small, built: Built, real: Project, tmp_path: Path) -> None:
    sources.copy(real.smoke, tmp_path / "suite")
    job = manifest.job(work(small, built), Pods(), tmp_path / "suite")
    data = job.config_map["data"]
    size = sum(len(key) + len(text.encode()) for key, text in data.items())
    assert 1 << 18 < size < 1 << 20, "Kubernetes' limit; below the first, `kubectl apply` needs no --server-side"
    assert all(re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key) for key in data)
    items = job.job["spec"]["template"]["spec"]["volumes"][0]["configMap"]["items"]
    assert {item["key"] for item in items} == data.keys()
    assert {item["path"] for item in items} >= {f"smoke/{file}" for file in sources.files(real.smoke)}


def test_the_manifest_is_written_and_nothing_is_run(
    small: Small, built: Built, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    monkeypatch.setenv("PATH", "")  # no oras, no kubectl
    printed = command(
        small.root, "fleet", TINY, *WHERE, "--namespace", "research", "--queue", "team", "--manifest", "-"
    )
    assert printed.code == 0, printed.err
    config_map, job = yaml.safe_load_all(printed.out)
    assert [each["metadata"]["namespace"] for each in (config_map, job)] == ["research", "research"]
    assert config_map["data"]["smoke.__main__.py"] == (small.project.smoke / "__main__.py").read_text()
    assert built.image.manifest in job["spec"]["template"]["spec"]["containers"][0]["image"]
    written = command(small.root, "fleet", TINY, *WHERE, "--manifest", "fleet.yaml")
    assert (written.code, written.out) == (0, "") and "next: kubectl apply --server-side" in written.err
    documents = list(yaml.safe_load_all((small.root / "fleet.yaml").read_text()))
    assert [each["metadata"].get("namespace") for each in documents] == [None, None]


def test_text_of_several_lines_is_written_as_people_read_it(small: Small, built: Built, root: Path) -> None:
    text = manifest.to_yaml([manifest.job(work(small, built), Pods(), root)])
    assert "pod.py: |" in text and '    """The first process of a pod' in text


# --- the first process of a pod ------------------------------------------------------------------------------------

ECHO = "import sys; print(sys.stdin.readline(), end=''); print('mixed', file=sys.stderr)"
HELD = "import select, sys; sys.stdin.readline(); print(select.select([0], [], [], 0)[0])"


def start(folder: Path, script: str) -> tuple[dict[str, Any], str, str]:
    """The machine that it says, what the supervisor prints, and its log."""
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o777)
    (folder / "request").write_text('{"probes": null}\n')
    argv = [sys.executable, "-I", "-S", str(manifest.SCRIPT), str(folder / "request"), str(folder / "log")]
    done = subprocess.run(
        [*argv, sys.executable, "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
    )  # fmt: skip
    assert done.stderr == ""
    first, _, rest = done.stdout.partition("\n")
    return json.loads(first), rest, (folder / "log").read_text()


def test_a_pod_says_its_machine_and_becomes_the_supervisor(tmp_path: Path) -> None:
    hardware, printed, log = start(tmp_path, ECHO)
    assert printed == '{"probes": null}\n'
    assert log == "mixed\n"
    here = machine.hardware("cpu")
    assert (hardware["cpu"], hardware["cores"]) == (here.name, here.cores)
    assert (tmp_path / "tmp").stat().st_mode & 0o1777 == 0o1777, "a user could rename the supervisor's folder"


def test_the_input_of_the_supervisor_stays_open(tmp_path: Path) -> None:
    """It would end the run: whoever asked has gone away."""
    assert start(tmp_path, HELD)[1] == "[]\n"


SMI = "#!/bin/sh\nprintf 'NVIDIA H200, 570.86.15\\nNVIDIA H200, 570.86.15\\n'\n"


@pytest.mark.parametrize("mounted", ["usr/bin/nvidia-smi", "usr/bin"])
def test_the_gpus_of_a_pod_are_those_of_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounted: str
) -> None:
    """The node mounts its nvidia-smi into the pod: the file alone, or its folder."""
    program = tmp_path / "usr" / "bin" / "nvidia-smi"
    program.parent.mkdir(parents=True)
    program.write_text(SMI)
    program.chmod(0o755)
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"31 24 8:1 / {tmp_path / mounted} ro,nosuid - ext4 /dev/sda1 rw\n")
    script = manifest.SCRIPT.read_text().replace("/usr/bin/nvidia-smi", str(program))
    (tmp_path / "pod.py").write_text(script.replace("/proc/self/mountinfo", str(mounts)))
    monkeypatch.setattr(manifest, "SCRIPT", tmp_path / "pod.py")
    assert start(tmp_path, "pass")[0]["gpus"] == [["NVIDIA H200", "570.86.15"]] * 2
