"""What a fleet consists of, and how long its parts may take."""

from __future__ import annotations

import pytest

from builder.certify.certificate import ProbeResult
from builder.fleet import collect, plan
from builder.fleet.unit import Outcome, Unit
from tests.conftest import TINY, Small
from tests.unit.conftest import Command


def test_kinds_of_gpus_are_read() -> None:
    assert plan.gpus("h200:2,a100") == [("h200", 2), ("a100", 1)]
    for wrong in ("", "h200:", "h200:0", "h200:2,h200:4", "h 200", "h200;rm"):
        with pytest.raises(ValueError, match=r"h200|not KIND"):
            plan.gpus(wrong)


def test_a_stack_for_the_cpu_is_one_unit_and_each_kind_of_gpu_one_of_a_cuda_stack(small: Small) -> None:
    kinds = [("h200", 2), ("a100", 1)]
    assert plan.units(small.project, [TINY, TINY], kinds, "host") == [Unit(TINY, "host")]
    path = small.file("stack.toml")
    path.write_text(path.read_text().replace('device = "cpu"', 'device = "cuda"'))
    units = plan.units(small.project, [TINY], kinds, "host")
    assert [unit.name for unit in units] == [f"{TINY}-h200-2", f"{TINY}-a100-1"]


def test_a_cuda_stack_without_a_kind_ends_with_3(small: Small, command: Command) -> None:
    path = small.file("stack.toml")
    path.write_text(path.read_text().replace('device = "cpu"', 'device = "cuda"'))
    answer = command(small.root, "fleet", TINY, "--on", "slurm")
    assert answer.code == 3 and "needs a GPU, and no kind is named" in answer.err


def test_the_time_limit_follows_the_last_certificate(small: Small) -> None:
    assert plan.minutes(small.project, Unit(TINY, "host")) == 120
    small.issue(probes=[ProbeResult(name="alpha", outcome="passed", matters="it does", seconds=600.0)])
    assert plan.minutes(small.project, Unit(TINY, "host")) == 30 + 40


def test_a_statement_is_judged_here_before_it_counts(small: Small) -> None:
    unit, scratch = Unit(TINY, "host"), small.scratch()
    good = small.issue().read_bytes()
    path = small.project.stack_dir(TINY) / "certificates" / "cpu-host.json"
    path.unlink()
    for statement, good_ in ((good, True), (good.replace(b"PASSED", b"FAILED"), False), (b"{}", False), (b"", False)):
        outcome = Outcome(unit, "n1", 1.0, statement)
        collected = collect.collect(small.project, outcome, small.root / "out", scratch, place=True)
        assert (collected.good, path.is_file()) == (good_, good_), collected.doubts
        path.unlink(missing_ok=True)
