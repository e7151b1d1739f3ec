"""The run monitor in a release of TRL whose loss computes the reference itself: the real one, as it was installed."""

from __future__ import annotations

from benchmarks import monitor, monitor_releases
from benchmarks.environments import release
from benchmarks.monitored import faults, healthy
from builder.base import project
from builder.intent import advisory
from tests.conftest import ROOT

RELEASE = "0.18.2"
FAULTS = ("loss-sign", "reference-of-another", "reference-is-policy", "adapter-stays-on", "no-update")
WITH_REFERENCE = (6, 14)  # runs of the benchmark with a KL term


def test_it_sees_the_reference_that_the_loss_computes() -> None:
    home = project.find(ROOT)
    jobs = [healthy.jobs(15)[number] for number in WITH_REFERENCE]
    with home.holding("monitor-releases") as scratch, release(RELEASE, scratch) as (environment, versions):
        work = [*jobs, *map(faults.job, FAULTS)]
        results = {each["name"]: each for each in monitor.run(environment / "bin" / "python", work, {})}
    known = advisory.load_all(home)
    runs = monitor_releases.healthy_runs([results[job["name"]] for job in jobs], versions, known)
    assert runs == {"runs": len(jobs), "refused": {}, "alarms": []}
    injected = monitor_releases.injected({name: results[name] for name in FAULTS})
    assert injected["missed"] == []
    assert injected["noticed"].keys() == set(FAULTS)
