"""The vLLM server of a run: what is said before the run starts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from runtime import preflight, sampler
from runtime.check import Check
from runtime.train import command
from tests.unit.runtime.conftest import GOOD

SERVER = {"use_vllm": True, "vllm_mode": "server"}


class Health(BaseHTTPRequestHandler):
    """Answers GET /health as a server that is ready, and nothing else."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    """That of a server which is ready."""
    with HTTPServer(("127.0.0.1", 0), Health) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port that is taken, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def look(environ: dict[str, str] | None = None, *, cuda: bool = True, **settings: Any) -> Check:
    (check,) = sampler.look({**SERVER, **settings}, environ or {}, cuda=cuda)
    return check


@pytest.mark.parametrize("cuda", [True, False])
@pytest.mark.parametrize(
    "settings", [{}, {"use_vllm": True}, {**SERVER, "use_vllm": False}, {**SERVER, "vllm_mode": "colocate"}]
)
def test_a_run_without_a_server_is_told_nothing(settings: dict[str, Any], cuda: bool) -> None:
    assert sampler.look(settings, {}, cuda=cuda) == []


def test_a_server_that_is_ready_is_named(port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    ready = Check("ok", f"the vLLM server at {url} answers")
    assert look(vllm_server_host="127.0.0.1", vllm_server_port=port) == ready
    assert look(vllm_server_base_url=url, vllm_server_port=1, use_vllm="true") == ready


def test_a_server_that_does_not_answer_is_advice_with_the_command_that_starts_one(nobody: int) -> None:
    """It may still be starting, and TRL waits for it."""
    check = look(vllm_server_port=nobody)
    assert check.level == "advice"
    assert f"no vLLM server answers at http://0.0.0.0:{nobody} (" in check.message
    assert "Connection refused" in check.message and "TRL waits 240 s for it" in check.message
    assert "vetted use --server" in check.next_step
    assert "TRL waits 9 s" in look(vllm_server_port=nobody, vllm_server_timeout=9).message


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{}/x", "http://127.0.0.1:99999", "127.0.0.1:{}", "http://[", 7, "\n"]
)
def test_what_is_no_server_is_said_in_words(url: object, port: int) -> None:
    url = url.format(port) if isinstance(url, str) else url
    check = look(vllm_server_base_url=url)
    assert check.level == "advice" and f"no vLLM server answers at {url} (" in check.message


def test_a_stack_without_nccl_cannot_send_weights_to_a_server() -> None:
    check = look(cuda=False)
    assert check.level == "stop" and "needs a stack for GPUs" in check.message
    assert "vllm_mode: colocate" in check.next_step


@pytest.mark.parametrize(
    ("trainer", "server", "both"),
    [("0,1", "1", "1"), ("GPU-a, 2", "2,GPU-a", "2, GPU-a"), ("0", "1", ""), ("", "", "")],
)
def test_a_gpu_of_both_stops(trainer: str, server: str, both: str, port: int) -> None:
    """NCCL has one rank a GPU, and says so only when both have loaded the model."""
    environ = {"CUDA_VISIBLE_DEVICES": trainer, "VETTED_SERVER_GPUS": server}
    check = look(environ, vllm_server_host="127.0.0.1", vllm_server_port=port)
    assert check.level == ("stop" if both else "ok")
    assert not both or check.message.startswith(f"GPU {both} is given to the trainer and to the vLLM server")


def test_train_says_it_before_a_run_starts(
    tmp_path: Path, site: Path, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preflight, "look", list)
    monkeypatch.setattr(preflight, "stack", lambda _root: {})
    (here / "my.yaml").write_text(f"{GOOD}use_vllm: true\n")
    (tmp_path / "runs").mkdir()
    arguments = ["--config", "my.yaml", "--vllm_mode", "server"]
    assert command.main(arguments, tmp_path / "runs", site) == 2
    assert "config   vllm_mode: server needs a stack for GPUs" in capsys.readouterr().err
    assert list((tmp_path / "runs").iterdir()) == []
