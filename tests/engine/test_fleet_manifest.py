"""The Jobs of `vetted fleet --on kubernetes`, without a cluster: Kubernetes' schemas, and the real suite."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from builder.base import sources
from builder.certify.transcript import Transcript
from builder.fleet import manifest
from builder.fleet.manifest import Pods, Work
from builder.fleet.unit import Unit
from tests import parts
from tests.conftest import ROOT, TINY, Small
from tests.engine.test_examples import check
from tests.registry.conftest import make_image
from tests.unit.fleet import conftest


# 1.26 is the oldest that a fleet takes: podFailurePolicy is on there.
@pytest.mark.parametrize("version", ["1.26", "1.31", "1.37"])
def test_the_jobs_are_what_kubernetes_takes(version: str, small: Small, tmp_path: Path) -> None:
    built = make_image(small)
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


def test_the_role_of_the_how_to_is_one(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "how-to" / "fleet.md").read_text(encoding="utf-8")
    file = tmp_path / "role.yaml"
    file.write_text(text.partition("```yaml\n")[2].partition("```")[0])
    check("kubernetes-validate==1.37.0", "kubernetes-validate", "--strict", str(file))


def test_the_real_suite_answers_in_a_pod(small: Small) -> None:
    """Its files as a kubelet mounts them, six capabilities, no new privileges, and probes of another user."""
    parts.root()
    parts.programs("setpriv", how="apt-get install util-linux")
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:  # other users must pass through the folders above it
        root = Path(temporary)
        root.chmod(0o755)
        sources.copy(ROOT / "smoke", root / "suite")
        built = make_image(small)
        unit = Work(Unit(TINY, "kubernetes"), small.lock, built, f"registry.example/x@{built.image.manifest}", 30)
        job = manifest.job(unit, Pods(memory_gib=2), root / "suite")
        capabilities = job.job["spec"]["template"]["spec"]["containers"][0]["securityContext"]["capabilities"]["add"]
        kept = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities)])
        privileges = ["setpriv", "--no-new-privs", "--inh-caps", "-all", "--bounding-set", kept]
        code, log, message = conftest.kubelet(root / "pod", job.config_map, job.job, privileges)
        assert list((root / "pod" / "tmp").iterdir()) == [], "the supervisor leaves nothing"
    assert (code, message) == (0, "")
    transcript = Transcript(())
    for line in log.decode().splitlines(keepends=True)[1:]:
        transcript.take(line)
    assert transcript.finished
    results = {result.name: result for result in transcript.results}
    assert "tiny-lib" in (results["imports"].reason or "") and results["imports"].outcome == "failed"
    assert results["grpo-plain"].outcome == "not-run", "there is no stack beside Debian's Python"
