"""`vetted smoke` in an image: what it asks of the suite, and what it makes of the answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from runtime import preflight, smoke

CUDA = {"torch": "2.13.0", "nvidia-cuda-runtime": "13.0.96"}
# It keeps the request, reports two probes, and waits for the end of its input, as the real one does.
SUITE = """\
import json, pathlib, sys
asked = [sys.argv[1:], json.loads(sys.stdin.readline())]
pathlib.Path(__file__).with_name("request.json").write_text(json.dumps(asked))
for name, outcome in (("alpha", "passed"), ("beta", OUTCOME)):
    print(json.dumps({"event": "begin", "probe": name}))
    print(json.dumps({"event": "end", "probe": name, "outcome": outcome, "seconds": 1.0, "reason": "it fell"}))
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the suite, whose second probe passes."""
    (tmp_path / "smoke").mkdir()
    (tmp_path / "stack.json").write_text(json.dumps({"distributions": CUDA}))
    monkeypatch.setattr(smoke, "SUITE", tmp_path)
    monkeypatch.setattr(preflight, "STACK", str(tmp_path / "stack.json"))
    ends(tmp_path, "passed")
    return tmp_path


def ends(suite: Path, outcome: str) -> None:
    (suite / "smoke" / "__main__.py").write_text(SUITE.replace("OUTCOME", repr(outcome)))


@pytest.mark.parametrize(("distributions", "device"), [(CUDA, "cuda"), ({"torch": "2.13.0"}, "cpu")])
@pytest.mark.parametrize("probes", [[], ["alpha", "beta"]])
def test_the_request_says_the_device_and_the_memory_that_a_probe_may_use(
    probes: list[str], distributions: dict[str, str], device: str, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the memory, a probe of vLLM on two ranks would end at the limit that it declares for small machines."""
    (suite / "stack.json").write_text(json.dumps({"distributions": distributions}))
    monkeypatch.setattr(smoke, "memory_mib", lambda: 98765)
    assert smoke.main(probes) == 0
    argv, request = json.loads((suite / "smoke" / "request.json").read_text())
    assert argv == ["--python", sys.executable]
    assert request == {
        "device": device, "probes": probes or None, "distributions": distributions, "memory_mib": 98765,
    }  # fmt: skip


def test_a_red_probe_is_shown_with_its_reason(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends(suite, "failed")
    assert smoke.main([]) == 1
    printed = capsys.readouterr()
    assert "beta                     failed" in printed.out and "it fell" in printed.out
    assert printed.err == "1 failed\n"


@pytest.mark.parametrize(("found", "status"), [(0, 1), (1, 0)])
def test_probes_that_need_a_gpu_where_none_is_visible_are_no_success(
    found: int, status: int, suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that needs two, where there is one, was not asked for. The words are tested in tests/smoke/test_faults.py."""
    ends(suite, "not-run")
    file = suite / "smoke" / "__main__.py"
    reason = f"needs 2 GPU(s), found {found}"
    file.write_text(file.read_text().replace("it fell", reason))
    assert reason.endswith(smoke.NO_GPU) == (found == 0)
    assert smoke.main([]) == status
    printed = capsys.readouterr()
    assert f"not-run      1.0 s  {reason}" in printed.out
    assert ("no GPU is visible, so 1 did not run\nnext: docker compose run preflight" in printed.err) == (found == 0)


def test_without_a_suite_it_says_how_to_mount_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke, "SUITE", tmp_path)
    assert smoke.main([]) == 3
