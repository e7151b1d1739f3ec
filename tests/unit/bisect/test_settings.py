"""bisect config: real forked trials of a stand-in for training, which needs no torch; every outcome is an answer."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.base import errors
from builder.bisect import configuration, trials
from tests.commands import spawn
from tests.conftest import ROOT, Small
from tests.unit.conftest import Command


class Bench:
    """A project whose suite is the real one, and a configuration to try."""

    def __init__(self, small: Small, command: Command) -> None:
        self.small, self.command = small, command
        self.config = small.root / "my.yaml"
        self.log = small.root / "trials.log"
        self.trial = small.root / "trial.py"
        shutil.copyfile(Path(__file__).with_name("trial.py"), self.trial)

    def write(self, settings: Mapping[str, Any]) -> None:
        self.config.write_text(yaml.safe_dump(dict(settings), sort_keys=False))

    def argv(self, *more: str) -> list[str]:
        return ["bisect", "config", "--config", str(self.config), "--python", sys.executable, *more]

    def ask(self, *more: str, code: int = 0) -> Any:
        answer = self.command(self.small.root, *self.argv("--json", *more))
        assert answer.code == code, answer.out + answer.err
        return answer.json

    def count(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def bench(wheels: Small, command: Command, monkeypatch: pytest.MonkeyPatch) -> Bench:
    shutil.rmtree(wheels.project.smoke)
    shutil.copytree(ROOT / "smoke", wheels.project.smoke, ignore=shutil.ignore_patterns("__pycache__"))
    bench = Bench(wheels, command)
    monkeypatch.setattr(trials, "PROGRAM", bench.trial)
    monkeypatch.setattr(configuration, "PACKAGES", ())
    return bench


def test_two_of_25_settings_that_fail_together_are_what_is_left(bench: Bench) -> None:
    settings = {f"a{number:02}": number for number in range(25)}
    bench.write(settings)
    result = bench.ask()
    assert result["failing"] == {"a01": 1, "a17": 17}
    assert result["reason"] == "ValueError: a01 is 1, which a17 does not allow"
    assert result["take_out"] in (["a01"], ["a17"])
    assert result["trials"] == bench.count() <= 20
    assert yaml.safe_load(Path(result["smallest"]).read_text()) == result["failing"]
    works = yaml.safe_load(Path(result["works"]).read_text())
    assert works == {name: value for name, value in settings.items() if name not in result["take_out"]}


@pytest.mark.parametrize(
    ("name", "fault", "reason"),
    [
        ("crash", "crash: killed by SIGSEGV", "killed by SIGSEGV"),
        ("hang", "hang", "still running after 1 s"),
        ("nan", "nan", "loss is nan at step 1"),
        ("leave", "error: no such thing", "error: no such thing"),
    ],
)
def test_however_it_ends_is_an_outcome(bench: Bench, name: str, fault: str, reason: str) -> None:
    bench.write({"one": 1, name: True, "two": 2})
    result = bench.ask("--time-limit", "1")
    assert (list(result["failing"]), result["fault"], result["reason"]) == ([name], fault, reason)
    assert result["take_out"] == [name]


def test_another_failure_on_the_way_is_told_apart(bench: Bench) -> None:
    bench.write({"a01": 1, "nan": 1, "a17": 2})
    result = bench.ask()
    assert list(result["failing"]) == ["a01", "a17"]
    assert "nan" in result["take_out"] and len(result["take_out"]) == 2
    assert "other" in {row["verdict"] for row in result["tried"]}


def test_what_is_ours_is_replaced_and_what_is_long_reduced_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "zero3.json").write_text("{}")
    config = tmp_path / "my.yaml"
    config.write_text(
        "model_name_or_path: big\ndataset_name: theirs\noutput_dir: out\nmax_steps: 900\n"
        "max_completion_length: 8\ndeepspeed: zero3.json\nreward_funcs: [accuracy_reward]\n"
    )
    taken_apart = configuration.read(config, [])
    assert dict(taken_apart.settings) == {
        "max_steps": 2, "max_completion_length": 8, "deepspeed": str(tmp_path / "zero3.json")
    }  # fmt: skip
    assert taken_apart.replaced == ("model_name_or_path", "dataset_name", "output_dir", "reward_funcs")
    assert taken_apart.reduced == {"max_steps": (900, 2)}
    assert "deepspeed" in taken_apart.packages and "vllm" not in taken_apart.packages
    kept = configuration.read(config, ["model", "max_steps"])
    assert (kept.settings["model_name_or_path"], kept.settings["max_steps"]) == ("big", 900)
    assert kept.ours == ("data", "reward")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not YAML"),
        ("- a\n", "has no settings"),
        ("", "has no settings"),
        ("1: 2\n", "has no settings"),
        ("a: 2026-01-01\n", "not JSON serializable"),
        ("output_dir: x\n", "has nothing to search"),
    ],
)
def test_a_file_that_is_no_configuration_ends_with_3(bench: Bench, text: str, message: str) -> None:
    bench.config.write_text(text)
    assert message in bench.ask(code=3)["error"]["what"]


def test_a_file_that_is_not_there_ends_with_3(bench: Bench) -> None:
    assert "does not exist" in bench.ask(code=3)["error"]["what"]
    with pytest.raises(errors.BadInputError, match="not UTF-8 text"):
        bench.config.write_bytes(b"\x7fELF\xff")
        configuration.read(bench.config, [])


def test_a_configuration_that_works_ends_with_1(bench: Bench) -> None:
    bench.write({"one": 1, "two": 2})
    assert "my.yaml works with" in bench.ask(code=1)["error"]["what"]


def test_what_was_tried_is_not_tried_again(bench: Bench) -> None:
    bench.write({"one": 1, "nan": 1, "two": 2})
    first = bench.ask()
    assert bench.ask()["trials"] == 0
    assert bench.count() == first["trials"]
    assert bench.ask("--fresh")["trials"] == first["trials"]


def test_killed_in_the_middle_nothing_of_it_stays_and_it_goes_on(bench: Bench) -> None:
    bench.write({"slow": 1, **{f"a{number:02}": number for number in range(25)}})
    whole = bench.ask()["trials"]
    bench.log.unlink()
    change = f"configuration.PACKAGES = (); trials.PROGRAM = pathlib.Path({str(bench.trial)!r})"
    patch = f"import pathlib; from builder import cli; from builder.bisect import configuration, trials; {change}"
    argv = ["vetted", *bench.argv("--fresh")]
    with spawn(["-c", f"import sys; sys.argv = {argv!r}; {patch}; cli.main()"], bench.small.root) as child:
        deadline = time.monotonic() + 60
        while bench.count() < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(child.pid, signal.SIGKILL)
    while working_below(bench.small.root) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert working_below(bench.small.root) == []
    tried = bench.count()
    assert 4 <= tried < whole
    result = bench.ask()
    assert result["failing"] == {"a01": 1, "a17": 17}
    assert result["trials"] <= whole - tried + 1


def working_below(root: Path) -> list[str]:
    """The processes whose working directory lies below a folder."""
    result = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if link.parent.name != str(os.getpid()) and link.readlink().is_relative_to(root):
                result.append(link.parent.name)
    return result


def test_people_see_what_was_tried_and_what_to_take_out(bench: Bench) -> None:
    bench.write({"one": 1, "nan": 1, "max_steps": 50})
    answer = bench.command(bench.small.root, *bench.argv())
    assert answer.code == 0, answer.err
    assert "reduced: max_steps from 50 to 2\n" in answer.out
    assert "of 3 settings, this setting fails" in answer.out
    assert "  nan: 1\nit says: loss is nan at step 1\nall the rest works without nan\n" in answer.out


def test_the_python_that_is_named_is_the_one_that_runs(bench: Bench, tmp_path: Path) -> None:
    """Debian has no /usr/bin/python, and beside a python3.12 another `python` may lie."""
    (tmp_path / "bin").mkdir()
    named = tmp_path / "bin" / "python3"
    named.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    named.chmod(0o755)
    bench.write({"alpha": 1})
    answer = bench.command(bench.small.root, "bisect", "config", "--config", str(bench.config), "--python", str(named))
    assert "my.yaml works with" in answer.err


@pytest.mark.parametrize("named", ["/bin/sh", "/etc/passwd", "/etc", "/nowhere"])
def test_what_is_no_python_is_refused(bench: Bench, named: str) -> None:
    bench.write({"alpha": 1})
    answer = bench.command(bench.small.root, "bisect", "config", "--config", str(bench.config), "--python", named)
    assert answer.code == 3
    assert f"{named} is not a Python" in answer.err
