"""What the runner is asked, and what it answers to a bad request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smoke import probe
from smoke.__main__ import BAD_REQUEST
from smoke.run import request

from .conftest import HERE, Run

KNOWN = probe.discover(HERE / "faulty")


def test_request_defaults() -> None:
    """All probes, on the CPU, nothing known to be installed, seed 0, every probe's own memory limit."""
    parsed = request.parse("{}", KNOWN)
    assert parsed == request.Request("cpu", list(KNOWN.values()), {}, 0, None)


def test_request_is_understood() -> None:
    """Every key of it."""
    data = {"device": "cuda", "probes": ["good"], "distributions": {"trl": "1.0"}, "seed": 7, "memory_mib": 512}
    assert request.parse(json.dumps(data), KNOWN) == request.Request("cuda", [KNOWN["good"]], {"trl": "1.0"}, 7, 512)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "ended before the request"),
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ({"devices": "cpu"}, "unknown keys: devices; known: device, "),
        ({"device": "tpu"}, 'device must be "cpu" or "cuda"'),
        ({"probes": "good"}, "probes must be a list"),
        ({"probes": ["good", "bad"]}, "unknown probe: bad; known: dying-rank, exit-status"),
        ({"distributions": ["trl"]}, "distributions must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": True}, "seed must be"),
        ({"memory_mib": 0}, "memory_mib must be"),
    ],
)
def test_bad_request(text: Any, complaint: str) -> None:
    """It says what is wrong, and what would be right."""
    with pytest.raises(request.BadRequestError, match=complaint):
        request.parse(text if isinstance(text, str) else json.dumps(text), KNOWN)


def test_bad_request_ends_the_runner(start: Callable[..., Run]) -> None:
    """Before anything was started; standard output stays empty."""
    run = start("faulty", {"probes": ["no-such-probe"]})
    assert run.events() == []
    assert run.status() == BAD_REQUEST
    assert run.errors().startswith("smoke: unknown probe: no-such-probe; known: dying-rank, ")
    assert list(run.directory.iterdir()) == []


def test_input_that_ends_is_a_bad_request(start: Callable[..., Run]) -> None:
    """Nobody asked for anything."""
    run = start("faulty")
    assert run.process.stdin
    run.process.stdin.close()
    assert run.status() == BAD_REQUEST


GOOD = (HERE / "faulty/good.py").read_text()


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("def", "SyntaxError"),
        ("import no_such_package", "ModuleNotFoundError"),
        ("", "needs a constant PROBE"),
        (GOOD.replace('"""Does', '#"""Does'), "needs a docstring"),
        (GOOD.replace("headline=True", "headline=False"), "exactly one headline"),
        (GOOD.replace("equals=42", "equals=42, at_most=42"), "is one of at_most"),
    ],
)
def test_bad_probe_is_named(tmp_path: Path, source: str, complaint: str) -> None:
    """The file, and what is wrong with it."""
    (tmp_path / "bad_probe.py").write_text(source)
    with pytest.raises(probe.BadProbeError, match=f"bad_probe.py: .*{complaint}"):
        probe.discover(tmp_path)
