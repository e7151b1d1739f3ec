"""Damaged configurations, and Pythons that do not answer: each is a fact of its own, with its own sentence."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import yaml

from doctor import __main__ as program
from doctor.read import damage
from tests.conftest import ROOT
from tests.unit.doctor.kit import install
from tests.unit.doctor.odd_yaml import ODD, OTHERS

GOOD = """\
# accelerate
compute_environment: LOCAL_MACHINE
deepspeed_config:
  zero_stage: 3
  offload: {device: cpu, pin: [1, 2]}
lora_target_modules:
- q_proj
- name: v_proj
  rank: 8
url: http://x:80/y
text: "a quoted # value: yes" # comment
other: 'it''s'
long: >-
  folded: text
    more
plain: several
  lines
"""
DAMAGED = {
    "a.yaml": [
        ("a: 1\n\tb: 2\n", "is no YAML: line 2 is indented with a tab"),
        ("a: 1\nlearning_rate 1e-6\n", "is no YAML: line 2 is neither `key: value` nor a `- value` of a list"),
        ("a: 1\n  b: 2\n", "is no YAML: line 2 is indented below a key that has a value"),
        ("a:\n    b: 2\n  c: 3\n", "is no YAML: line 3 is indented like no key above it"),
        ("a: [1, 2\nb: 3\n", "is cut off, or line 1 opens a bracket ([) that nothing closes"),
        ("a: 1\nb: 'x\nc: 1\n", "is cut off, or line 2 opens a quote (') that nothing closes"),
        ("a: &x [1, 2\nb: 3\n", "is cut off, or line 1 opens a bracket ([) that nothing closes"),
        ("a:\n  'x\nb: 1\n", "is cut off, or line 2 opens a quote (') that nothing closes"),
        ("{a: 1,\n  b: [2\n", "is cut off, or line 1 opens a bracket ([) that nothing closes"),
        ("a: {b: [1, 2}\n", "is no YAML: line 1 closes a bracket (}) that is not open"),
        ("a: 1\n<<<<<<< HEAD\nb: 2\n", "has the marks of an unfinished merge, the first in line 2"),
    ],
    "a.json": [
        ('{"a": 1,\n "b": {"c": 2}', "is cut off in line 2"),
        ('{"a": 1,\n "b": "x', "is cut off in line 2"),
        ('{"a": 1\n "b": 2}', "is no JSON: line 2, column 2: Expecting ',' delimiter"),
        ('{"a": ' * 100_000, "is no JSON that any program reads: it is nested too deeply, or a number is too long"),
    ],
    "without-a-suffix": [('{"a": 1', "is cut off in line 1")],
}
CASES = [(name, text, what) for name, rows in DAMAGED.items() for text, what in rows]


@pytest.mark.parametrize(("name", "text", "what"), CASES, ids=range(len(CASES)))
def test_what_no_program_parses_is_said_with_its_line(name: str, text: str, what: str) -> None:
    assert damage.of(name, text) == what


@pytest.mark.parametrize("name", ["a.yaml", "a.json", "a.toml", "a.py", "a"])
def test_what_is_whole_is_not_damaged(name: str) -> None:
    text = {"a.json": '{"a": [1, 2]}\n', "a.py": '{"a": True}\n', "a.toml": '[a]\nb = "{"\n'}.get(name, GOOD)
    assert damage.of(name, text) == ""
    assert damage.of(name, "") == ""


def _parses(text: str) -> bool:
    try:
        for event in yaml.parse(text):
            assert event is not None
    except yaml.YAMLError:
        return False
    return True


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_odd_yaml_that_a_parser_reads_is_not_called_damaged(text: str) -> None:
    assert _parses(text)
    assert damage.of("a.yaml", text) == damage.of("a.yaml", text.replace("\n", "\r\n")) == ""


@pytest.mark.parametrize("text", OTHERS)
def test_what_another_parser_reads_is_not_called_damaged(text: str) -> None:
    assert damage.of("a.yaml", text) == ""


def _changed(text: str, draw: random.Random) -> str:
    """The text after an accident: cut, with a letter too many, without some, or with a line indented otherwise."""
    place, kind = draw.randrange(len(text) + 1), draw.randrange(5)
    if kind == 0:
        return text[:place]
    if kind == 1:
        return text[:place] + draw.choice("\t\"'[]{}:#-, \n|>&*!?%") + text[place:]
    if kind == 2:
        return text[:place] + text[place + draw.randrange(1, 6) :]
    lines = text.split("\n")
    number = draw.randrange(len(lines))
    before = draw.choice([" ", "  ", "\t", "   "])
    lines[number] = before + lines[number] if kind == 3 else lines[number].replace(":", "", 1)
    return "\n".join(lines)


def test_no_yaml_that_a_parser_reads_is_called_damaged() -> None:
    texts = [GOOD, *ODD.values(), *(path.read_text() for path in sorted((ROOT / "examples").rglob("*.yaml")))]
    draw = random.Random(7)
    said = 0
    for text in texts:
        assert damage.of("a.yaml", text) == ""
        for _ in range(20 if text in ODD.values() else 60):
            changed = _changed(text[:3000], draw)
            if damage.of("a.yaml", changed):
                said += 1
                assert not _parses(changed), changed
    assert said > 100  # and many are found


def answer(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = program.main(list(argv))
    return code, " ".join(capsys.readouterr().out.split())


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The packages of an environment without a known fault."""
    install(tmp_path / "site-packages", "left-pad", "1.0")
    return tmp_path / "site-packages"


def test_a_damaged_configuration_is_its_own_fact_and_no_reason_for_a_new_environment(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "grpo.json"
    config.write_text('{"use_vllm": true, "vllm_mode": "colocate",\n "lear')
    code, out = answer(capsys, "--python", str(site), "--config", str(config))
    assert code == 1
    assert f"1. {config} is cut off in line 2 for sure; crashes [damaged-configuration]" in out
    assert "create the environment again" not in out
    _, out = answer(capsys, "--python", str(site), "--config", str(config), "--json")
    said = json.loads(out)
    assert said["run"]["damaged"] == [f"{config} is cut off in line 2"] and said["run"]["blank"] == []
    assert said["run"]["facts"]["vllm_mode"] == "colocate"  # what is there was meant
    error = "json.decoder.JSONDecodeError: Unterminated string"
    _, out = answer(capsys, "--python", str(site), "--config", str(config), "--error", error)
    assert "for sure, explains the error; crashes [damaged-configuration]" in out


def test_a_configuration_without_settings_is_no_reason_for_a_new_environment(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.yaml").touch()
    code, out = answer(capsys, "--python", str(site), "--config", str(tmp_path / "empty.yaml"), "--all")
    assert code == 0
    assert "empty.yaml has no setting that the doctor knows" in out
    assert "create the environment again" not in out and "--config FILE" in out


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("exit 3", "ends and prints nothing"),
        ("echo hello", "prints something else than what it was asked"),
        ("yes", "prints more than 64 KB"),
    ],
)
def test_a_python_that_does_not_answer_is_its_own_fact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str, what: str
) -> None:
    shim, log = tmp_path / "python3", tmp_path / "run.log"
    shim.write_text(f"#!/bin/sh\n{script}\n")
    shim.chmod(0o755)
    log.write_text("Traceback (most recent call last):\nModuleNotFoundError: No module named 'trl.nothing'\n")
    code, out = answer(capsys, "--python", str(shim), "--log", str(log))
    assert code == 1
    assert f"{shim} does not answer like a Python: it {what} for sure" in out
    assert "create the environment again" not in out
    _, out = answer(capsys, "--python", str(shim), "--log", str(log), "--json")
    run = json.loads(out)["run"]
    assert (run["silent"], run["damaged"]) == (f"{shim} {what}", [])
    assert program.main(["--python", str(shim)]) == 3  # nothing else was given: there is nothing to say
    assert f"does not answer like a Python: it {what}" in capsys.readouterr().err
