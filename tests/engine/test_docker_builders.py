"""Two BuildKits that share layers through a registry: daemons of their own, with nothing else in common."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from builder.image import bake, target
from tests import parts
from tests.conftest import Small
from tests.registry.server import serving

NAMES = ("vetted-one", "vetted-two")
# What it makes depends on the moment: two builds that agree have taken it from one.
STEP = """\
#include <stdio.h>
#include <time.h>
int main(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    FILE *made = fopen("/made", "w");
    return !made || fprintf(made, "%lld.%09ld", (long long) now.tv_sec, now.tv_nsec) < 0 || fclose(made);
}
"""
DOCKERFILE = 'FROM scratch\nCOPY step /step\nRUN --network=none ["/step"]\n'


@contextmanager
def engine(folder: Path) -> Iterator[str]:
    """A Docker engine that keeps all that it has in a folder; yields its address."""
    folder.mkdir()
    settings = folder / "daemon.json"
    settings.write_text(json.dumps({"features": {"containerd-snapshotter": True}}))
    address = f"unix://{folder}/socket"
    argv = [
        "dockerd", f"--config-file={settings}", f"--host={address}", f"--data-root={folder}/data",
        f"--exec-root={folder}/exec", f"--pidfile={folder}/pid", "--iptables=false", "--ip6tables=false",
    ]  # fmt: skip
    # Not `--bridge=none`: with it, dockerd deletes docker0, which is the bridge of this machine's own engine.
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        for _ in range(240):
            version = subprocess.run(["docker", "--host", address, "version"], capture_output=True, check=False)
            if version.returncode == 0:
                break
            assert child.poll() is None, (folder / "log").read_text()[-2000:]
            time.sleep(0.5)
        yield address
    finally:
        child.terminate()
        child.wait(timeout=120)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Two contexts of docker, one for each engine; yields a repository of a registry."""
    parts.root()
    parts.plugin("buildx")
    parts.programs("dockerd", "docker-registry", "gcc")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "config"))
    before = interfaces()
    with ExitStack() as running:
        host = running.enter_context(serving(tmp_path / "store"))
        for name in NAMES:
            # A socket's path has at most 107 letters.
            address = running.enter_context(engine(Path("/run") / f"{name}-{tmp_path.name[-8:]}"))
            argv = ["docker", "context", "create", name, "--docker", f"host={address}"]
            subprocess.run(argv, check=True, capture_output=True)
        yield f"{host}/layers"
    assert before <= interfaces()  # what runs beside has its network


def interfaces() -> set[str]:
    """The network interfaces of this machine that last; those of containers come and go."""
    return {path.name for path in Path("/sys/class/net").iterdir() if not path.name.startswith(("veth", "br-"))}


def bake_on(small: Small, names: list[str], cache: str | None) -> str:
    """The digest of the image, by a bake file like that of `vetted bake`, with one small step in place of a stack."""
    own = bake.folder(small.project) / small.lock.name
    context = own / "context"
    context.mkdir(parents=True)
    (context / "step.c").write_text(STEP)
    subprocess.run(["gcc", "-static", "-O1", "-o", context / "step", context / "step.c"], check=True)
    (context / "step.c").unlink()
    (context / "Dockerfile").write_text(DOCKERFILE)
    (own / target.INPUTS).write_text(small.inputs)
    options = dataclasses.asdict(
        target.Target(
            context=str(context), contexts={}, dockerfile=str(context / "Dockerfile"),
            args={"SOURCE_DATE_EPOCH": str(small.lock.epoch)}, tags=[target.tag(small.lock, small.inputs)],
            platforms=["linux/amd64"], attest=["type=provenance,disabled=true", "type=sbom,disabled=true"],
            output=[f"type=oci,tar=false,dest={own / target.LAYOUT},{target._EXPORT}"],
        )
    )  # fmt: skip
    if cache:
        options |= {"cache-from": [target.cached(cache, small.lock)], "cache-to": [target.caching(cache, small.lock)]}
    path = bake.folder(small.project) / bake.FILE
    name = bake.name(small.lock)
    path.write_text(json.dumps({"group": {"default": {"targets": [name]}}, "target": {name: options}}))
    built = bake.run(small.project, [small.lock], path, small.scratch(), lambda _: None, names)
    return built[small.lock.name].image.manifest


def test_a_second_builder_takes_the_layers_of_the_first(small: Small, cache: str) -> None:
    first, second = ([name] for name in NAMES)
    digest = bake_on(small, first, cache)
    assert bake_on(small, second, cache) == digest
    subprocess.run(
        ["docker", "--context", *second, "builder", "prune", "--all", "--force"], check=True, capture_output=True
    )
    assert bake_on(small, second, None) != digest, "the step makes the same each time: the test shows nothing"
