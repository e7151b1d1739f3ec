"""Running the suite: what a runner says or fails to say."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from builder.base import errors, sources
from builder.certify import certificate
from builder.certify import suite as suites
from builder.certify.certificate import ProbeResult
from builder.certify.suite import Request, Runner
from builder.certify.transcript import Event
from tests.conftest import GOOD_RUN, RUNNER, Small

START = 'say("start", probes=["alpha", "beta", "gamma"], python="3.11.2")\n'


class Suite:
    """A suite with the runner that a test writes."""

    def __init__(self, small: Small) -> None:
        self.small, self.events, self.scratch = small, list[Event](), small.scratch()
        self.log = self.scratch / "suite.log"
        self.until: Callable[[ProbeResult], bool] = lambda _: False

    def run(self, script: str, probes: Sequence[str] = ()) -> tuple[dict[str, ProbeResult], str]:
        path = self.scratch / "runner.py"
        path.write_text(script)
        request = Request("cpu", self.small.lock.versions, tuple(probes))
        runner = Runner([sys.executable, str(path)])
        answer = suites.run(runner, request, self.scratch, self.events.append, self.until)
        results, python = answer.results, answer.python
        assert len({result.name for result in results}) == len(results)
        return {result.name: result for result in results}, python


@pytest.fixture
def suite(small: Small) -> Suite:
    return Suite(small)


def test_what_the_runner_reports_is_the_result(suite: Suite) -> None:
    measured = {"name": "loss", "value": 0.25, "bound": {"at_most": 1}, "ok": True, "headline": True}
    results, python = suite.run(
        RUNNER + START + f'end("alpha", measurements=[{measured!r}], peak_memory_mib=7.5)\n'
        'end("beta", "failed", reason="the reward fell", log_tail="the end")\n'
        'end("gamma", "not-run", reason="needs a GPU")\nsay("finish")\n'
    )
    assert python == "3.11.2"
    assert [(name, result.outcome) for name, result in results.items()] == [
        ("alpha", "passed"), ("beta", "failed"), ("gamma", "not-run"),
    ]  # fmt: skip
    assert results["alpha"].headline == certificate.Measurement.model_validate(measured)
    assert (results["alpha"].seconds, results["alpha"].peak_memory_mib) == (0.5, 7.5)
    assert (results["beta"].reason, results["beta"].log_tail) == ("the reward fell", "the end")


def test_every_event_is_passed_on_in_order(suite: Suite) -> None:
    suite.run(RUNNER + GOOD_RUN)
    assert [(event["event"], event.get("probe")) for event in suite.events] == [
        ("start", None), ("begin", "alpha"), ("end", "alpha"), ("begin", "beta"), ("end", "beta"), ("finish", None),
    ]  # fmt: skip


def test_the_runner_is_asked_for_what_was_asked_for(suite: Suite) -> None:
    echo = 'json.dump(request, open("request.json", "w"))\n'
    suite.run(RUNNER + echo + GOOD_RUN, ["alpha", "beta"])
    request = json.loads((suite.scratch / "request.json").read_text())
    assert request.pop("memory_mib") > 0
    assert request == {"device": "cpu", "probes": ["alpha", "beta"], "distributions": {"tiny-lib": "1.0"}, "seed": 0}
    suite.run(RUNNER + echo + GOOD_RUN)
    assert json.loads((suite.scratch / "request.json").read_text())["probes"] is None


@pytest.mark.parametrize(
    "death",
    [
        "raise SystemExit('no such module')",
        "import sys; sys.stdin.close(); raise SystemExit('no such module')",
        "import os, sys; print('no such module', file=sys.stderr, flush=True); os.kill(os.getpid(), 11)",
        "import sys; print('no such module', file=sys.stderr)",
    ],
)
def test_a_runner_that_dies_before_it_starts_is_an_error_with_its_words(suite: Suite, death: str) -> None:
    with pytest.raises(errors.VettedError, match=r"running the suite .*failed\nno such module") as caught:
        suite.run(death)
    assert caught.value.exit_code == 1


def test_a_runner_that_dies_while_importing_is_an_error(suite: Suite) -> None:
    with pytest.raises(errors.VettedError, match="exit code -11"):
        suite.run(RUNNER + "import os; os.kill(os.getpid(), 11)")


@pytest.mark.parametrize(
    ("death", "code"), [("os.kill(os.getpid(), 9)", "-9"), ("os._exit(0)", "0"), ("sys.exit('oh no')", "1")]
)
def test_a_runner_that_dies_midway_takes_its_remaining_probes_with_it(suite: Suite, death: str, code: str) -> None:
    script = RUNNER + START + 'end("alpha")\nimport os\nprint("last words", file=sys.stderr, flush=True)\n'
    results, _ = suite.run(f'{script}say("begin", probe="beta")\n{death}\n')
    assert [result.outcome for result in results.values()] == ["passed", "crashed", "crashed"]
    for name in ("beta", "gamma"):
        assert results[name].reason == f"the suite's runner ended early (exit code {code})"
        assert "last words" in (results[name].log_tail or "")


ALPHA, BETA, GAMMA, FINISH = 'end("alpha")\n', 'end("beta")\n', 'end("gamma")\n', 'say("finish")\n'


@pytest.mark.parametrize(
    "script",
    [
        START + ALPHA + GAMMA + FINISH,
        START + ALPHA + BETA + FINISH,
        START + ALPHA + ALPHA + BETA + GAMMA + FINISH,
        START + ALPHA + BETA + GAMMA + 'end("delta")\n' + FINISH,
        START + ALPHA + BETA + GAMMA + FINISH + GAMMA,
        START + ALPHA + BETA + GAMMA + FINISH + FINISH,
        START + START + ALPHA + BETA + GAMMA + FINISH,
        ALPHA + START + ALPHA + BETA + GAMMA + FINISH,
        START + 'say("end", probe="alpha", outcome="passed")\n' + BETA + GAMMA + FINISH,
        START + ALPHA + BETA + GAMMA + 'say("bye")\n',
        START.replace('"beta"', '"alpha"') + FINISH,
        START + 'say("begin", probe="alpha")\n' + BETA + GAMMA + FINISH,
    ],
)  # fmt: skip
def test_what_is_said_out_of_turn_ends_the_run(suite: Suite, script: str) -> None:
    """A probe left out, twice, unannounced, or after the end: somebody else writes to the runner's output."""
    with pytest.raises(errors.VettedError, match="the suite's runner said an event out of turn"):
        suite.run(RUNNER + script)


@pytest.mark.parametrize(
    "garbage",
    [
        'print("Loading weights: 100%")', 'print("{")', 'print("[1, 2]")', 'print("null")', "print()",
        'print(\'{"no": "event"}\')', 'sys.stdout.buffer.write(b"\\xff\\xfe\\n")',
    ],
)  # fmt: skip
def test_what_is_no_event_ends_the_run(suite: Suite, garbage: str) -> None:
    with pytest.raises(errors.VettedError, match="something that is no event"):
        suite.run(f"{RUNNER}{START}{ALPHA}{garbage}\n{BETA}{GAMMA}{FINISH}")


def test_probes_that_were_not_asked_for_end_the_run(suite: Suite) -> None:
    with pytest.raises(errors.VettedError, match="out of turn"):
        suite.run(RUNNER + START + ALPHA + BETA + GAMMA + FINISH, ["alpha"])


@pytest.mark.parametrize("death", ["os._exit(137)", "os.kill(os.getpid(), 9)", "os._exit(1)"])
def test_a_runner_that_ends_badly_after_it_has_reported_everything_proves_nothing(suite: Suite, death: str) -> None:
    with pytest.raises(errors.VettedError, match="running the suite"):
        suite.run(RUNNER + START + ALPHA + BETA + GAMMA + FINISH + death + "\n")


def test_a_line_that_was_cut_off_is_no_event(suite: Suite) -> None:
    """The runner was killed while it wrote."""
    cut = 'print(\'{"event": "end", "pro\', end="", flush=True)\nos._exit(9)\n'
    results, _ = suite.run(RUNNER + START + ALPHA + 'say("begin", probe="beta")\n' + cut)
    assert [result.outcome for result in results.values()] == ["passed", "crashed", "crashed"]


def test_an_engine_that_goes_away_is_not_called_a_crash_of_the_probes(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runner.py").write_text(
        RUNNER
        + START
        + ALPHA
        + "print('error waiting for container: unexpected EOF', file=sys.stderr)\nsys.exit(125)\n"
    )
    (tmp_path / "docker").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/runner.py"\n')
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(errors.MissingToolError, match="the Docker engine is not running"):
        suites.run(Runner(["docker", "run"]), Request("cpu", {}), suite.scratch, lambda _: None)


def test_passed_beside_a_number_that_is_out_of_its_bound_is_a_failure(suite: Suite) -> None:
    wrong = {"name": "loss", "value": 2.0, "bound": {"at_most": 1}, "ok": False, "headline": True}
    results, _ = suite.run(RUNNER + START + f'end("alpha", measurements=[{wrong!r}])\n' + BETA + GAMMA + FINISH)
    assert (results["alpha"].outcome, results["alpha"].reason) == ("failed", "passed beside loss")


def test_a_refused_request_is_a_bad_input_with_the_runners_words(suite: Suite) -> None:
    with pytest.raises(errors.BadInputError, match=r"^smoke: unknown probe: nope\nnext: ") as caught:
        suite.run("import sys; print('noise\\nsmoke: unknown probe: nope', file=sys.stderr); sys.exit(3)")
    assert caught.value.exit_code == 3


def test_a_run_without_its_finish_is_no_result(suite: Suite) -> None:
    with pytest.raises(errors.VettedError, match="running the suite"):
        suite.run(RUNNER + START + 'end("alpha")\nend("beta")\nend("gamma")\n')


@pytest.mark.parametrize("number", ["float('nan')", "float('inf')", "-float('inf')"])
def test_a_number_that_cannot_be_recorded_is_a_failure(suite: Suite, number: str) -> None:
    script = RUNNER + START + f'end("alpha", measurements=[dict(name="loss", value={number})])\n'
    results, _ = suite.run(script + 'end("beta")\nend("gamma")\nsay("finish")\n')
    assert results["alpha"].outcome == "failed"
    assert (results["alpha"].reason or "").startswith("its result cannot be recorded: measurements.0.value.")
    assert results["alpha"].seconds == 0.5


@pytest.mark.parametrize("fields", ['"skipped"', '"passed", mood="good"', '"passed", measurements=7', "None"])
def test_a_result_of_another_shape_is_a_failure(suite: Suite, fields: str) -> None:
    results, _ = suite.run(RUNNER + START + f'end("alpha", {fields})\nend("beta")\nend("gamma")\nsay("finish")\n')
    assert results["alpha"].outcome == "failed"
    assert results["beta"].outcome == "passed"


def test_seconds_that_cannot_be_recorded_are_a_failure(suite: Suite) -> None:
    line = 'end("alpha", seconds=float("nan"))\n'
    results, _ = suite.run(RUNNER + START + line + 'end("beta")\nend("gamma")\nsay("finish")\n')
    assert results["alpha"].outcome == "failed"


def test_a_run_that_is_told_to_stops_at_a_result(suite: Suite) -> None:
    """With what there is, and without its runner, which would go on for a minute."""
    suite.until = lambda result: result.outcome == "failed"
    results, _ = suite.run(
        RUNNER + START + 'end("alpha")\nend("beta", "failed", reason="red")\nimport time\ntime.sleep(60)\n'
    )
    assert list(results) == ["alpha", "beta"]


@pytest.mark.parametrize("event", ['say("start")', 'say("end")', 'say("start", probes=["alpha"])'])
def test_an_event_without_its_fields_is_an_error(suite: Suite, event: str) -> None:
    with pytest.raises(errors.VettedError):
        suite.run(RUNNER + event)


def test_the_suites_identity_changes_with_content_path_and_number_of_files(small: Small) -> None:
    smoke = small.project.smoke
    (smoke / "probes").mkdir()
    (smoke / "probes" / "a.py").write_text("x = 1\n")
    digests = [sources.digest(smoke)]
    (smoke / "probes" / "a.py").write_text("x = 2\n")
    digests.append(sources.digest(smoke))
    (smoke / "probes" / "a.py").rename(smoke / "probes" / "b.py")
    digests.append(sources.digest(smoke))
    (smoke / "probes" / "b.py").rename(smoke / "b.py")
    digests.append(sources.digest(smoke))
    (smoke / "c.py").touch()
    digests.append(sources.digest(smoke))
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == len("sha256:") + 64 for digest in digests)


@pytest.mark.parametrize(
    "stray",
    ["probes/__init__.pyc", "torch.so", "notes.txt", "probes/torch.cpython-311-x86_64-linux-gnu.so", "probe.PY"],
)
def test_a_stray_file_in_the_suite_is_refused(small: Small, tmp_path: Path, stray: str) -> None:
    path = small.project.smoke / stray
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")
    for use in (sources.digest, lambda smoke: sources.copy(smoke, tmp_path / "copy")):
        with pytest.raises(errors.BadInputError, match="does not belong there") as caught:
            use(small.project.smoke)
        assert stray in caught.value.what


def test_a_link_in_the_suite_is_refused(small: Small, tmp_path: Path) -> None:
    (tmp_path / "other.py").touch()
    (small.project.smoke / "other.py").symlink_to(tmp_path / "other.py")
    with pytest.raises(errors.BadInputError, match=r"other\.py does not belong there"):
        sources.digest(small.project.smoke)


def test_a_copy_holds_what_the_digest_covers_and_nothing_else(small: Small, tmp_path: Path) -> None:
    smoke = small.project.smoke
    (smoke / "__pycache__").mkdir()
    (smoke / "__pycache__" / "probe.cpython-311.pyc").write_bytes(b"x")
    (smoke / ".probe.py.swp").write_bytes(b"x")
    before = os.umask(0o077)
    try:
        assert sources.copy(smoke, tmp_path / "root") == sources.digest(smoke)
    finally:
        os.umask(before)
    copied = [path for path in (tmp_path / "root" / "smoke").rglob("*") if path.is_file()]
    assert sorted(path.name for path in copied) == ["__init__.py", "__main__.py"]
    assert all(path.stat().st_mode & 0o004 for path in copied)  # the probes are another user


def test_the_suites_identity_is_its_source_and_not_where_it_lies(small: Small, tmp_path: Path) -> None:
    before = sources.digest(small.project.smoke)
    (small.project.smoke / "__pycache__").mkdir()
    (small.project.smoke / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"x")
    assert sources.digest(small.project.smoke) == before
    shutil.copytree(small.project.smoke, tmp_path / "elsewhere")
    assert sources.digest(tmp_path / "elsewhere") == before
