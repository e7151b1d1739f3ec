"""The Jobs of `vetted fleet --on kubernetes`, held against the schemas of those who read them. No cluster is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base import sources
from builder.fleet import manifest
from builder.fleet.manifest import Pods, Work
from builder.fleet.unit import Unit
from tests import images
from tests.conftest import ROOT, TINY, Small
from tests.engine.test_examples import check


# 1.26 is the oldest that a fleet takes: podFailurePolicy is on there.
@pytest.mark.parametrize("version", ["1.26", "1.29", "1.31", "1.33", "1.35", "1.37"])
def test_the_jobs_are_what_kubernetes_takes(version: str, small: Small, tmp_path: Path) -> None:
    built = images.put(small)
    sources.copy(ROOT / "smoke", tmp_path / "suite")  # the real suite, as text in YAML
    jobs = [
        manifest.job(
            Work(unit, small.lock, built, f"registry.example/team/vetted@{built.image.manifest}", 30),
            Pods(queue="team"),
            tmp_path / "suite",
        )
        for unit in (Unit(TINY, "kubernetes"), Unit(TINY, "kubernetes", "NVIDIA-H200", 2))
    ]
    file = tmp_path / "fleet.yaml"
    file.write_text(manifest.to_yaml(jobs, "research"))
    tool = ("kubernetes-validate==1.37.0", "kubernetes-validate", "--strict", "--kubernetes-version", version)
    check(*tool, str(file))
    file.write_text(file.read_text().replace("podFailurePolicy", "podFailurePolicies"))
    with pytest.raises(AssertionError, match="podFailurePolicies"):
        check(*tool, str(file))
