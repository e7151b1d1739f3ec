"""From what is known of a probe's end to one word and one sentence."""

from __future__ import annotations

import math
import signal

import pytest

from smoke.probe import Bound, Probe, Reading
from smoke.run.job import Job, RankReport
from smoke.run.outcome import Ending, ended, judge

PROBE = Probe("it does not", bounds=(Bound("x", "because", "m", at_most=1, headline=True),), links=())


def report(failure: str | None = None, done: bool = True) -> RankReport:
    """The report of a rank."""
    result = RankReport()
    result.failure, result.done = failure, done
    return result


def verdict(ending: Ending, rank_report: RankReport | None = None, value: float = 0.5) -> tuple[str, str]:
    """Judge an end with one reading."""
    return judge(ending, rank_report or report(), {"x": Reading("x", value)}, PROBE)


def test_passed() -> None:
    """Needs no reason."""
    assert verdict(Ending(0)) == ("passed", "")


def test_only_a_kill_that_the_kernel_counted_is_its_oom_killers() -> None:
    """A SIGKILL that it did not count came from somebody else; another signal never comes from it."""
    assert verdict(Ending(-signal.SIGKILL, oom_killed=True)) == ("oom", "killed by the kernel's OOM killer")
    assert verdict(Ending(-signal.SIGKILL)) == ("crashed", "killed by SIGKILL")
    assert verdict(Ending(-signal.SIGSEGV, oom_killed=True)) == ("crashed", "killed by SIGSEGV")


def test_what_the_runner_stopped_it_for_comes_first() -> None:
    """The SIGKILL was then the runner's own."""
    assert verdict(Ending(-signal.SIGKILL, ("timeout", "too slow"), oom_killed=True)) == ("timeout", "too slow")


def test_death_after_the_result_is_a_crash() -> None:
    """However good the numbers were."""
    assert verdict(Ending(-signal.SIGABRT, rank=1)) == ("crashed", "rank 1: killed by SIGABRT")


def test_reason_names_the_bound() -> None:
    """With value, unit and limit."""
    assert verdict(Ending(0), value=2) == ("failed", "x is 2 m, must be at most 1")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "bound",
    [
        Bound("x", "because"),
        Bound("x", "because", at_most=math.inf),
        Bound("x", "because", at_least=-math.inf),
        Bound("x", "because", equals=math.inf),
    ],
    ids=str,
)
def test_no_bound_lets_pass_what_is_not_finite(value: float, bound: Bound) -> None:
    """Not even one without a limit."""
    assert not bound.holds(value)


def test_signal_without_a_name() -> None:
    """Real-time signals have only numbers."""
    assert ended(-(signal.SIGRTMIN + 5)) == f"killed by signal {signal.SIGRTMIN + 5}"


def test_report_leaves_out_what_was_cut_off(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A process that dies while it writes leaves half a line."""
    job = Job("", "cpu", 0, 1, str(tmp_path_factory.mktemp("job")), {})
    job.append(0, {"reading": "x", "value": "nan", "detail": ""})
    with (tmp_path_factory.getbasetemp() / job.directory / "result-0.jsonl").open("a") as file:
        file.write('{"done": tr')
    assert math.isnan(job.report(0).readings["x"].value)
    assert not job.report(0).done
