"""TRL's server around vLLM (`vllm_mode: server`) on the CPU, as compose.yaml starts it: all of it that needs no GPU.

NCCL moves the weights, and needs GPUs; a carrier over TCP takes its place here (tests/engine/serving/carrier.py).
tests/gpu/test_weight_update.py has NCCL's own part, up to the first call of the driver.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from builder.certify import hostenv
from tests import parts
from tests.conftest import ROOT
from tests.engine.conftest import Workshop
from tests.engine.test_bundle import ALONE
from tests.unit.runtime.test_compose import BASE, read

SERVICE = BASE["services"]["vllm"]
HEALTH = SERVICE["healthcheck"]["test"]
TRAINER = read("compose.server.yaml")["services"]["train"]["environment"]
# Docker hands the proxies of its own configuration to every container.
PROXIES = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
ASK = """
import json, sys, urllib.error, urllib.request
method, path = sys.argv[1:]
data = b"{}" if method == "POST" else None
try:
    answer = urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:8000" + path, data, method=method))
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, answer.read().decode()]))
"""
# What `vetted train` sets on a machine without a compiler.
CPU = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_CI_ENV": "1", "TORCHDYNAMO_DISABLE": "1", "DS_ACCELERATOR": "cpu"}


@dataclass(frozen=True)
class Stack:
    """The stack for CPUs, whose vLLM is the distribution vllm-cpu. `modules`: a folder of modules for a server."""

    python: Path
    environment: Mapping[str, str]
    model: Path
    modules: Path

    def serve(self, model: Path, *more: str) -> list[str]:
        """The command of compose.yaml's service, and more options for vLLM."""
        program, *options = SERVICE["entrypoint"]
        return [str(self.python.with_name(program)), *options, "--model", str(model), *more]


@pytest.fixture(scope="module")
def stack(depot: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    parts.root()
    parts.programs("unshare", "nsenter")
    folder = tmp_path_factory.mktemp("server")
    prepared = hostenv.path(depot.project, depot.lock)
    python = prepared / "bin" / "python"
    service = {name: value for name, value in SERVICE["environment"].items() if not name.endswith("HOME")}
    # Sockets of a server that is ended stay behind: not in /tmp.
    places = {"HOME": str(folder), "VLLM_RPC_BASE_PATH": str(folder)}
    environment = {**os.environ, **hostenv.environment(prepared), **service, **CPU, **places}
    # An image has no uv, which vLLM would ask for the installed packages; this tool's own environment has one.
    folders = environment["PATH"].split(os.pathsep)
    environment["PATH"] = os.pathsep.join(folder for folder in folders if not (Path(folder) / "uv").exists())
    save = "import sys, pathlib; from smoke.kit import tiny; tiny.save(pathlib.Path(sys.argv[1]), seed=1)"
    model = folder / "model"
    subprocess.run(
        [python, "-W", "ignore", "-c", save, model], env={**environment, "PYTHONPATH": str(ROOT)}, check=True
    )
    modules = folder / "modules"
    distribution(modules, "vllm", f"{depot.lock.versions['vllm-cpu']}+cpu")  # vLLM's own name for a build for CPUs
    distribution(modules, "carrier", "1", "[vllm.general_plugins]\ncarrier = tests.engine.serving.carrier:install\n")
    return Stack(python, environment, model, modules)


def distribution(folder: Path, name: str, version: str, entry_points: str = "") -> None:
    """The metadata of a distribution."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)


@dataclass
class Server:
    """A server that is ready, in a network namespace of its own. `without_pip`: its settings, asked for without pip."""

    stack: Stack
    process: subprocess.Popen[bytes]
    without_pip: tuple[int, str] = field(default=(0, ""))

    def beside(self, argv: list[str], **more: str) -> subprocess.CompletedProcess[str]:
        """Run a program in the server's network, as compose.server.yaml does with the trainer."""
        entered = ["nsenter", "--target", str(self.process.pid), "--net", *argv]
        return subprocess.run(
            entered, env={**self.stack.environment, **PROXIES, **more}, capture_output=True, text=True, check=False
        )

    def ask(self, method: str, path: str) -> tuple[int, str]:
        """The status and the text of an answer."""
        done = self.beside([sys.executable, "-I", "-c", ASK, method, path])
        assert done.returncode == 0, done.stderr
        status, text = json.loads(done.stdout)
        return status, text

    def healthy(self) -> bool:
        """Whether the health check of compose.yaml passes."""
        kind, program, *options = HEALTH
        assert (kind, program) == ("CMD", "python")
        return self.beside([str(self.stack.python), *options]).returncode == 0


@pytest.fixture(scope="module")
def server(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("log") / "server.log"
    path = os.pathsep.join(map(str, (stack.modules, ROOT)))
    argv = ["unshare", "--net", sys.executable, "-I", "-c", ALONE, *stack.serve(stack.model)]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            argv, env={**stack.environment, "PYTHONPATH": path}, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        started = Server(stack, process)
        try:
            while not started.healthy():
                assert process.poll() is None, log.read_text(errors="replace")[-4000:]
                time.sleep(1)
            started.without_pip = started.ask("GET", "/server_info?config_format=json")
            for source in metadata.files("pip") or ():
                if source.parts[0].startswith("pip"):
                    (stack.modules / source).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source.locate(), stack.modules / source)
            yield started
        finally:
            process.terminate()


def test_a_server_without_pip_cannot_tell_its_settings_for_which_trl_asks_first(server: Server) -> None:
    """vLLM lists the installed packages for that, with pip, or with uv in an environment that uv has made."""
    status, text = server.without_pip
    assert status == 500 and "'NoneType' object has no attribute 'splitlines'" in text
    status, text = server.ask("GET", "/server_info?config_format=json")
    assert status == 200 and json.loads(text)["vllm_config"]["weight_transfer_config"] == {"backend": "nccl"}


@pytest.fixture(scope="module")
def trained(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What TRL's client and trainer did with the server."""
    script = str(Path(__file__).parent / "serving" / "trainer.py")
    argv = [str(server.stack.python), "-W", "ignore", script, str(server.stack.model)]
    done = server.beside([*argv, str(tmp_path_factory.mktemp("run"))], **TRAINER, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_the_client_finds_the_server_and_says_what_is_wrong(server: Server, trained: dict[str, Any]) -> None:
    assert trained["model"] == str(server.stack.model)
    assert trained["world"] == 1
    assert trained["nobody"].startswith("ConnectionError: The vLLM server can't be reached at http://127.0.0.1:1 after")
    assert "maximum context length is 512 tokens" in trained["too long"]


def test_the_client_waits_for_ever_where_something_else_answers(trained: dict[str, Any]) -> None:
    """Its timeout, zero here, is for those that do not answer."""
    assert trained["asked of another"] == 3


def test_a_trainer_without_a_gpu_is_refused(trained: dict[str, Any]) -> None:
    assert trained["on a CPU"].startswith("NotImplementedError: Weight synchronization runs on vLLM's NCCL")
    assert "_cuda_setDevice" in trained["on a GPU"], "it goes to the driver before it meets the server"


def test_an_update_changes_the_weights_that_the_server_samples_with(trained: dict[str, Any]) -> None:
    """The two meet at 0.0.0.0, which vLLM takes for the trainer's address where there is no network."""
    assert trained["address"] == "0.0.0.0"  # noqa: S104
    ours, others = trained["before"]
    assert ours < 0.1 < 1 < others
    ours, others = trained["after"]
    assert others < 0.1 < 1 < ours


def test_each_step_samples_with_the_weights_of_the_step_before(trained: dict[str, Any]) -> None:
    assert len(trained["sampling"]) == 3 and max(trained["sampling"]) < 0.05
    policy, start = trained["trained"]
    assert policy < 0.1 < start, "three steps have changed it, and the server has it"


def test_a_trainer_that_dies_during_an_update_leaves_a_server_that_takes_no_other(
    server: Server, trained: dict[str, Any]
) -> None:
    assert trained["trained"], "the last update is complete"
    assert server.ask("POST", "/start_weight_update")[0] == 200
    status, text = server.ask("POST", "/start_weight_update")
    assert status == 500 and "a weight update is already active" in text
    assert server.ask("POST", "/finish_weight_update")[0] == 200
    assert server.healthy()


def test_a_server_that_cannot_start_ends_with_a_reason(server: Server) -> None:
    serve = server.stack.serve(server.stack.model, "--port", "8000")
    done = server.beside(serve, PYTHONPATH=str(server.stack.modules))
    assert done.returncode == 1 and "OSError: [Errno 98] Address already in use" in done.stderr


def test_the_command_does_not_start_with_the_build_for_cpus_as_it_is(stack: Stack) -> None:
    """It asks for the version of the distribution vllm, and this one is vllm-cpu."""
    done = subprocess.run(stack.serve(stack.model), env=stack.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "No package metadata was found for vllm" in done.stderr
