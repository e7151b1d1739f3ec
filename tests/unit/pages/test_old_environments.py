"""Older environments: a red probe counts as real only where an advisory names it for those very versions."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import old_environments as recorder
from builder.base.project import Project
from builder.certify.certificate import ProbeResult
from builder.intent import advisory
from builder.pages import evidence, old_environments
from tests.conftest import ROOT, Small

KNOWN = advisory.load_all(Project(ROOT))


def result(name: str, outcome: Any = "failed") -> ProbeResult:
    return ProbeResult(
        name=name, matters="it does", outcome=outcome, reason="gradient_error is 0.5", seconds=1.0, measurements=[],
        peak_memory_mib=1.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("versions", "probe", "why"),
    [
        ({"trl": "0.29.0", "transformers": "5.2.0"}, "gradient-accumulation", ["VETTED-0159"]),
        ({"trl": "0.29.0", "transformers": "5.5.4"}, "gradient-accumulation", []),
        ({"trl": "1.9.0", "transformers": "5.14.1"}, "interactions", ["VETTED-0160", "VETTED-0161", "VETTED-0174"]),
        ({"trl": "1.12.0", "transformers": "5.16.1"}, "interactions", ["VETTED-0174"]),
        ({"trl": "1.14.2", "transformers": "5.19.0"}, "interactions", []),
    ],
)
def test_an_advisory_explains_its_probe_in_its_versions(versions: dict[str, str], probe: str, why: list[str]) -> None:
    (red,) = recorder.red(
        [result(probe), result("imports", "passed"), result("vllm-device", "not-run")], versions, KNOWN
    )
    assert (red["probe"], red["outcome"], red["advisories"]) == (probe, "failed", why)


def row(name: str, *advisories: str) -> dict[str, Any]:
    red = [{"probe": "interactions", "outcome": "failed", "reason": "", "advisories": list(advisories)}]
    return {
        "name": name, "date": "2026-02-27", "versions": {"transformers": "5.2.0"}, "passed": 20, "not_run": 17,
        "red": red, "seconds": 80.0,
    }  # fmt: skip


def test_the_table_says_what_nobody_explains(small: Small) -> None:
    for part in (old_environments.summary, old_environments.results):
        assert part(small.project) == "Not measured yet.\n"
    rows = [row("0.29.0", "VETTED-0159"), row("1.9.0")]
    evidence.record(small.project, "old-environments", "it", {"rows": rows}, small.scratch())
    text = old_environments.results(small.project)
    assert old_environments.summary(small.project).startswith(
        "**1 of 2** red probes in 2 environments have an advisory for those versions. Measured on "
    )
    assert "`interactions` (VETTED-0159)" in text
    assert "`interactions` (**no advisory**)" in text


def test_rows_of_the_same_suite_stay(small: Small) -> None:
    recorder._record(small.project, [row("0.29.0"), row("1.9.0")])
    recorder._record(small.project, [row("1.9.0", "VETTED-0160")])
    record = evidence.read(small.project, old_environments.OldEnvironments)
    assert record is not None
    assert [(found.name, found.red[0].advisories) for found in record.rows] == [
        ("0.29.0", []),
        ("1.9.0", ["VETTED-0160"]),
    ]


def test_an_unknown_release_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        recorder.main(["9.9.9"])
    assert "9.9.9: choose from 0.16.1, " in capsys.readouterr().err
