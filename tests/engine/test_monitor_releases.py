"""The run monitor in older releases of TRL, each as it was installed on its day: its own faults and injected ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import monitor, monitor_releases
from benchmarks.environments import release
from benchmarks.monitored import faults, healthy
from builder.base import project
from builder.intent import advisory
from runtime.monitor import judge
from tests.conftest import ROOT

WITHOUT_LIGER: dict[str, Any] = {"ranks": 2, "options": {"loss_type": "bnpo", "per_device_train_batch_size": 4}}
WITH_LIGER = {**WITHOUT_LIGER, "options": {**WITHOUT_LIGER["options"], "use_liger_loss": True}}
FAULTS = ("loss-sign", "reference-of-another", "reference-is-policy", "adapter-stays-on", "no-update")
WITH_REFERENCE = (6, 14)  # runs of the benchmark with a KL term


def ran(jobs: Sequence[Mapping[str, Any]], trl: str, *more: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The results of jobs in a release, and its versions. `more`: packages beside it."""
    home = project.find(ROOT)
    with home.holding("monitor-releases") as scratch, release(trl, scratch, *more) as (environment, versions):
        return {each["name"]: each for each in monitor.run(environment / "bin" / "python", jobs, {})}, versions


def alarms(result: Mapping[str, Any]) -> dict[str, int]:
    assert result.get("failure") == "", result
    return {each["check"]: each["first"] for each in result["findings"] if each["outcome"] == judge.ALARM}


def test_it_sees_that_each_rank_trains_on_its_own_gradients() -> None:
    """VETTED-0176, by its real version."""
    jobs = [{**WITH_LIGER, "name": "liger"}, {**WITHOUT_LIGER, "name": "plain"}]
    results, versions = ran(jobs, "0.17.0", "liger-kernel")
    assert (list(alarms(results["liger"])), alarms(results["plain"])) == (["ranks-agree"], {})
    assert alarms(results["liger"])["ranks-agree"] <= 2
    assert results["liger"]["weights"] != results["liger"]["others"][0]["weights"]
    assert results["plain"]["weights"] == results["plain"]["others"][0]["weights"]
    known = {record.id: record.matches(versions) for record in advisory.load_all(project.find(ROOT))}
    assert [known[name] for name in monitor_releases.ADVISORIES["ranks-agree"]] == ["possible"]


def test_it_sees_what_vllm_said_of_its_tokens_by_the_ratio_alone() -> None:
    """TRL 0.23 asks for log-probabilities without the temperature (VETTED-0025), and hands on only their ratio."""
    unscaled, drawn = faults.job("engine-scores-unscaled"), healthy.jobs(10)[9]
    results, _ = ran([unscaled, drawn], "0.23.1")
    assert alarms(results[unscaled["name"]]) == {"sampler-trainer": 1}
    assert alarms(results[drawn["name"]]) == {}
    assert all(row["sampler_unexplained"] > 0 for row in results[drawn["name"]]["rows"])


def test_it_sees_the_reference_that_the_loss_computes() -> None:
    jobs = [healthy.jobs(15)[number] for number in WITH_REFERENCE]
    results, versions = ran([*jobs, *map(faults.job, FAULTS)], "0.18.2")
    known = advisory.load_all(project.find(ROOT))
    runs = monitor_releases.healthy_runs([results[job["name"]] for job in jobs], versions, known)
    assert runs == {"runs": len(jobs), "refused": {}, "alarms": []}
    injected = monitor_releases.injected({name: results[name] for name in FAULTS})
    assert injected["missed"] == []
    assert injected["noticed"].keys() == set(FAULTS)
