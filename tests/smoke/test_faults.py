"""Every way in which a probe can go wrong is reported as what it is, and the others still run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.smoke import NO_GPU

from .conftest import HERE, Event, Run

FAULTS = {
    "good": ("passed", None),
    "good-fresh": ("passed", None),
    "good-ranks": ("passed", None),
    "noisy": ("passed", None),
    "leaves-process": ("passed", None),
    "sigfpe": ("crashed", "killed by SIGFPE"),
    "sigsegv": ("crashed", "killed by SIGSEGV"),
    "sigkill": ("crashed", "killed by SIGKILL"),
    "memory-hog": ("oom", r"used \d+ MiB of memory, more than its 200 MiB"),
    "hang": ("timeout", "still running after 0.5 s"),
    "silent-exit": ("failed", "exited with status 0 without a result"),
    "exit-status": ("failed", "exited with status 7 without a result"),
    "raises": ("failed", "ValueError: no such luck"),
    "nan": ("failed", "answer is nan, must be finite"),
    "infinite": ("failed", "answer is inf, must be at least 1"),
    "out-of-bounds": ("failed", "answer is 41, must be exactly 42: so close"),
    "unmeasured": ("failed", "answer was not measured"),
    "unbounded": ("failed", "surprise was measured, but has no bound"),
    "missing-package": ("not-run", "not installed: no_such_package"),
    "not-applicable": ("not-run", "this TRL has no such option"),
    "not-applicable-rank": ("not-run", "needs 2 GPUs"),
    "not-applicable-late": (
        "failed",
        "not applicable, reported after its first reading: this TRL has no such option",
    ),
    "not-applicable-unknown": (
        "failed",
        "not applicable, for a reason that the probe does not list: the moon is full",
    ),
    "missing-gpu": ("passed", None),  # on the CPU no GPU is needed
    "dying-rank": ("crashed", "rank 1: killed by SIGSEGV"),
    "failing-rank": ("failed", "rank 1: ValueError: no such luck"),
    "silent-rank": ("failed", "rank 1: exited with status 0 without a result"),
}


def ends(events: list[Event]) -> dict[str, Event]:
    """The `end` events by their probe."""
    return {event["probe"]: event for event in events if event["event"] == "end"}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """One run of all the faulty probes."""
    directory = tmp_path_factory.mktemp("faults")
    run = Run(directory, HERE / "faulty", json.dumps({"device": "cpu"}))
    try:
        events = run.events()
        assert run.status() == 0
        assert run.errors() == ""
        assert run.processes() == {}
        assert list(directory.iterdir()) == []
        return events
    finally:
        run.close()


def test_events_come_in_order(events: list[Event]) -> None:
    """A start, a ready, a begin and an end for each probe, a finish, and nothing that a probe printed."""
    names = sorted(FAULTS)
    assert events[0]["probes"] == names
    # What was never started was not measured either.
    unmeasured = {"missing-package"}
    pairs = [
        (name, what)
        for name in names
        for what in ("begin", "measured", "end")
        if what != "measured" or name not in unmeasured
    ]
    assert [(event["probe"], event["event"]) for event in events[2:-1]] == pairs
    assert [event["event"] for event in (*events[:2], events[-1])] == ["start", "ready", "finish"]


@pytest.mark.parametrize("probe", FAULTS)
def test_fault_is_reported_as_what_it_is(events: list[Event], probe: str) -> None:
    """Outcome and reason fit the fault; a log comes with everything that ran and did not pass."""
    outcome, reason = FAULTS[probe]
    end = ends(events)[probe]
    assert (end["outcome"], reason is None or re.fullmatch(reason, end["reason"])) != (outcome, None), end
    assert end["outcome"] == outcome, end
    assert (end["reason"] is None) == (outcome == "passed")
    if outcome == "passed":
        assert end["log_tail"] == ""
        assert [(m["value"], m["ok"]) for m in end["measurements"]] == [(42, True)]


@pytest.mark.parametrize(
    ("probe", "logged"),
    [("sigsegv", "string_at"), ("hang", "wait_forever"), ("raises", "no such luck"), ("failing-rank", "Traceback")],
)
def test_log_tells_where_it_happened(events: list[Event], probe: str, logged: str) -> None:
    """Also where a signal ended it, and where it hung."""
    assert logged in ends(events)[probe]["log_tail"]


def test_measurements_before_a_failure_are_kept(events: list[Event]) -> None:
    """They may say why it failed."""
    assert [m["name"] for m in ends(events)["raises"]["measurements"]] == ["answer"]


def test_every_end_says_why_its_probe_matters(events: list[Event]) -> None:
    """Also that of a probe which was not run."""
    assert {name: end["matters"] for name, end in ends(events).items()} == dict.fromkeys(FAULTS, "it does not")


@pytest.mark.parametrize(("probe", "value"), [("nan", "nan"), ("infinite", "inf")])
def test_what_is_not_finite_never_passes(events: list[Event], probe: str, value: str) -> None:
    """And travels as a string: JSON has no number for it."""
    (measurement,) = ends(events)[probe]["measurements"]
    assert (measurement["value"], measurement["ok"]) == (value, False)


def test_lost_zygote_is_reported_and_not_missed(start: Callable[..., Run]) -> None:
    """The probe that ran is lost with it; those after it get processes of their own."""
    run = start("deadly", {"device": "cpu"})
    outcomes = {name: (end["outcome"], end["reason"]) for name, end in ends(run.events()).items()}
    assert outcomes == {
        "a-good": ("passed", None),
        "b-kills-zygote": ("crashed", "the zygote, parent of every probe, has ended: killed by SIGKILL"),
        "c-good": ("passed", None),
    }
    assert run.status() == 0


@pytest.fixture
def needs_peft(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Make probes that need a package `peft` with the given source; returns arguments for `start`."""

    def make(source: str) -> dict[str, Any]:
        (tmp_path / "path").mkdir()
        (tmp_path / "path/peft.py").write_text(source)
        (tmp_path / "probes").mkdir()
        probe = (HERE / "faulty/good.py").read_text().replace("links=()", 'links=(), needs=("peft",)')
        for name in ("one", "two"):
            (tmp_path / f"probes/{name}.py").write_text(probe)
        return {
            "probes": str(tmp_path / "probes"),
            "request": {"device": "cpu"},
            "PYTHONPATH": str(tmp_path / "path"),
        }

    return make


@pytest.mark.parametrize(
    ("source", "imported"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "the process importing it: killed by SIGILL"),
        ("raise ImportError('not with that driver')", "ImportError: not with that driver"),
        ("print('{\"ready\": true}')\n__version__ = '9.9'", "9.9"),
    ],
)
def test_import_that_fails_is_reported_and_stops_nothing(
    start: Callable[..., Run], needs_peft: Callable[[str], dict[str, Any]], source: str, imported: str
) -> None:
    """Whether it raises or takes the process with it, every probe still runs."""
    events = start(**needs_peft(source)).events()
    (ready,) = (event for event in events if event["event"] == "ready")
    assert ready["preloaded"]["peft"].startswith(imported)
    assert {name: end["outcome"] for name, end in ends(events).items()} == {"one": "passed", "two": "passed"}


TABLE = """
from pathlib import Path

built = []

def get_checkpoint_conversion_mapping(kind):
    if not built:
        built.append(kind)
        with Path(FILE).open("a") as file:
            file.write("built\\n")
        FAULT
"""


@pytest.mark.parametrize("fault", ["pass", "raise ValueError('broken')"])
def test_table_of_transformers_is_built_before_the_forks(start: Callable[..., Run], tmp_path: Path, fault: str) -> None:
    """Once for all probes. One that cannot be built does not spoil the import."""
    package = tmp_path / "path/transformers"
    (package / "models/qwen2").mkdir(parents=True)
    for name in ("__init__", "trainer", "models/__init__", "models/qwen2/__init__", "models/qwen2/modeling_qwen2"):
        (package / f"{name}.py").write_text("__version__ = '9.9'\n")
    table = TABLE.replace("FILE", repr(str(tmp_path / "built"))).replace("FAULT", fault)
    (package / "conversion_mapping.py").write_text(table)
    (tmp_path / "probes").mkdir()
    probe = (HERE / "faulty/good.py").read_text().replace("links=()", 'links=(), needs=("transformers",)')
    call = "from transformers.conversion_mapping import get_checkpoint_conversion_mapping as mapping"
    for name in ("one", "two"):
        (tmp_path / f"probes/{name}.py").write_text(probe.replace("yield", f"{call}\n    mapping('qwen2')\n    yield"))
    events = start(str(tmp_path / "probes"), {"device": "cpu"}, PYTHONPATH=str(tmp_path / "path")).events()
    (ready,) = (event for event in events if event["event"] == "ready")
    assert ready["preloaded"] == {"transformers": "9.9"}
    assert {name: end["outcome"] for name, end in ends(events).items()} == {"one": "passed", "two": "passed"}
    assert (tmp_path / "built").read_text() == "built\n"


def test_gpus_are_needed_on_cuda_only(start: Callable[..., Run]) -> None:
    """A thousand of them no machine has."""
    end = ends(start("faulty", {"device": "cuda", "probes": ["missing-gpu"]}).events())["missing-gpu"]
    assert end["outcome"] == "not-run"
    assert re.fullmatch(r"needs 1000 GPU\(s\), found \d+", end["reason"])


def test_no_gpu_is_said_in_the_words_that_vetted_smoke_looks_for(start: Callable[..., Run]) -> None:
    request = {"device": "cuda", "probes": ["missing-gpu"]}
    end = ends(start("faulty", request, CUDA_VISIBLE_DEVICES="").events())["missing-gpu"]
    assert end["reason"] == f"needs 1000 {NO_GPU}"


def test_memory_limit_of_the_request_is_the_limit(start: Callable[..., Run]) -> None:
    """It takes the place of the probe's own."""
    end = ends(start("faulty", {"probes": ["memory-hog"], "memory_mib": 100}).events())["memory-hog"]
    assert end["outcome"] == "oom"
    assert "more than its 100 MiB" in end["reason"]
    assert end["peak_memory_mib"] > 100


def test_probes_run_in_the_order_asked_for(start: Callable[..., Run]) -> None:
    """And only those, each once."""
    run = start("faulty", {"probes": ["raises", "good", "raises"]})
    assert list(ends(run.events())) == ["raises", "good"]


def test_nothing_of_the_callers_environment_reaches_a_probe(start: Callable[..., Run], tmp_path: Path) -> None:
    """Neither its caches nor the rank of a job that the caller is part of."""
    (tmp_path / "probes").mkdir()
    probe = (
        (HERE / "faulty/good.py")
        .read_text()
        .replace("yield", "import os\n\n    print(dict(os.environ))\n    1 / 0\n    yield")
    )
    (tmp_path / "probes/tells.py").write_text(probe)
    run = start(str(tmp_path / "probes"), {}, HF_HOME="/elsewhere", RANK="3")
    names = ends(run.events())["tells"]["log_tail"]
    assert "'HF_HUB_OFFLINE'" in names
    assert "'RANK'" not in names
    assert "/elsewhere" not in names
