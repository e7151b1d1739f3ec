"""bisect packages, on tiny distributions: every outcome, few runs, and an answer that is minimal by test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from builder.base import tomlfile
from builder.bisect import draft
from builder.intent import advisory
from builder.intent.advisory import Advisory
from tests.conftest import LIBRARY, PYTHON, RUNNER, TINY, Small, make_wheel, spawn
from tests.unit.conftest import Command

NAMES = [f"part-{letter}" for letter in "abcdefgh"]
GOOD, BAD = "1.0", "2.0"
# One probe, which fails when the condition that the test sets holds for what is installed; it keeps a log of its runs.
SUITE = (
    RUNNER
    + """\
import importlib.metadata, os, pathlib, time
def has(name):
    try:
        return importlib.metadata.version("part-" + name) == "2.0"
    except importlib.metadata.PackageNotFoundError:
        return False
log = pathlib.Path(RUNS)
with log.open("a") as file:
    print("run", file=file)
count = len(log.read_text().splitlines())
say("start", probes=["works"], python="3.11.2")
CONDITION
say("finish")
"""
)


def condition(text: str) -> str:
    """The runner's code for: red when this holds."""
    return f"""\
if {text}:
    end("works", "failed", reason="ValueError: it broke", log_tail="it broke")
else:
    end("works")
"""


class Parts:
    """A project whose two ends are files of pins, in a wheelhouse of tiny distributions."""

    def __init__(self, small: Small, command: Command) -> None:
        self.small, self.command = small, command
        self.runs = small.root / "runs.log"
        self.good = small.root / "good.txt"
        self.bad = small.root / "bad.txt"
        self.pins(self.good, dict.fromkeys(NAMES, GOOD))
        self.pins(self.bad, dict.fromkeys(NAMES, BAD))
        for name in NAMES:
            for version in (GOOD, BAD):
                self.wheel(name, version)

    def wheel(self, name: str, version: str, requires: Sequence[str] = ()) -> None:
        module = name.replace("-", "_")
        make_wheel(self.small.wheelhouse, name, version, {f"{module}.py": f"version = {version!r}\n"}, requires)

    def pins(self, path: Path, versions: Mapping[str, str]) -> None:
        path.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))

    def suite(self, code: str) -> None:
        text = SUITE.replace("RUNS", repr(str(self.runs))).replace("CONDITION\n", code)
        (self.small.project.smoke / "__main__.py").write_text(text)

    def breaks(self, text: str) -> None:
        self.suite(condition(text))

    def argv(self, *more: str) -> list[str]:
        ends = ["--good", "good.txt", "--bad", "bad.txt", "--python", PYTHON]
        return ["bisect", "packages", *ends, "--probe", "works", *more]

    def ask(self, *more: str, code: int = 0) -> Any:
        answer = self.command(self.small.root, *self.argv("--json", *more))
        assert answer.code == code, answer.out + answer.err
        return answer.json

    def count(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0


@pytest.fixture
def parts(wheels: Small, command: Command) -> Parts:
    (wheels.project.advisories).mkdir()
    return Parts(wheels, command)


def names(changes: Iterable[Mapping[str, str]]) -> list[str]:
    return [change["name"] for change in changes]


def verdicts(found: Mapping[str, Any]) -> list[str]:
    return [row["verdict"] for row in found["tried"]]


def test_one_culprit_among_eight_is_named_with_its_versions(parts: Parts) -> None:
    parts.breaks('has("f")')
    found = parts.ask()
    assert found["culprits"] == [{"name": "part-f", "good": GOOD, "bad": BAD}]
    assert (found["along"], found["changes"], found["reason"]) == ([], 8, "ValueError: it broke")
    assert found["runs"] == parts.count() <= 8
    assert list((parts.small.project.state / "host").iterdir()) == []


def test_two_that_fail_only_together_are_both_named(parts: Parts) -> None:
    parts.breaks('has("b") and has("g")')
    found = parts.ask()
    assert names(found["culprits"]) == ["part-b", "part-g"]
    tried = {tuple(row["changes"]): row["verdict"] for row in found["tried"]}
    for alone in ("part-b 1.0 → 2.0", "part-g 1.0 → 2.0"):
        assert tried[(alone,)] == "green"


def test_a_set_that_cannot_exist_is_an_outcome_and_not_an_end(parts: Parts) -> None:
    parts.wheel("part-f", BAD, ["part-c>=3"])
    parts.wheel("part-h", BAD, ["part-a<2"])
    parts.wheel("part-c", "3.0")
    parts.pins(parts.bad, {**dict.fromkeys(NAMES, BAD), "part-c": "3.0", "part-h": GOOD})
    parts.breaks('has("f")')
    found = parts.ask()
    assert names(found["culprits"]) == ["part-f"]
    assert names(found["along"]) == ["part-c"]


def test_what_excludes_each_other_is_unresolvable_and_is_said(parts: Parts) -> None:
    # The good end's d cannot be beside the bad end's a, and the bad end has no d: no middle way but without d.
    parts.wheel("part-a", BAD, ["part-d>=2"])
    parts.wheel("part-d", BAD, ["part-h>=2"])
    parts.wheel("part-h", BAD, ["part-b<2"])
    parts.pins(parts.bad, dict.fromkeys(NAMES, BAD))
    parts.breaks('has("b")')
    found = parts.ask()
    assert names(found["culprits"]) == ["part-b"]
    assert "unresolvable" in verdicts(found)
    (row,) = [row for row in found["tried"] if row["verdict"] == "unresolvable"][:1]
    assert row["runs"] == 0 and "part-" in row["reason"]


def test_what_only_came_along_can_be_the_culprit(parts: Parts) -> None:
    parts.wheel("part-a", BAD, ["part-h>=2"])
    parts.breaks('has("h")')
    found = parts.ask()
    assert (names(found["culprits"]), found["along"]) == (["part-h"], [])


def test_another_failure_on_the_way_is_not_followed(parts: Parts) -> None:
    """With c, but without e, it fails in another way, which is not what is looked for."""
    parts.suite(
        'if has("c") and not has("e"):\n    end("works", "failed", reason="ImportError: no e")\n'
        'elif has("g"):\n    end("works", "failed", reason="ValueError: it broke")\nelse:\n    end("works")\n'
    )
    found = parts.ask()
    assert names(found["culprits"]) == ["part-g"]
    assert found["fault"] == "ValueError"


def test_numbers_out_of_bounds_that_vary_are_the_same_failure(parts: Parts) -> None:
    parts.suite(
        """\
def broken(*names):
    wrong = [{"name": name, "value": 2, "bound": {"at_most": 1}, "ok": False} for name in names]
    end("works", "failed", reason=f"{names[0]} is 2", measurements=wrong)
if has("g"):
    broken("x", *(["y"] if count % 2 else []))
elif has("d"):
    broken("z")
else:
    end("works")
"""
    )
    found = parts.ask()
    assert names(found["culprits"]) == ["part-g"]
    assert {row["verdict"] for row in found["tried"]} == {"green", "red", "other"}


def test_added_and_removed_distributions_are_changes(parts: Parts) -> None:
    parts.pins(parts.good, {"part-a": GOOD, "part-b": GOOD})
    parts.pins(parts.bad, {"part-a": GOOD, "part-c": BAD})
    parts.breaks('has("c")')
    assert parts.ask()["culprits"] == [{"name": "part-c", "good": None, "bad": BAD}]
    parts.suite("import importlib.util\n" + condition('importlib.util.find_spec("part_b") is None'))
    assert parts.ask()["culprits"] == [{"name": "part-b", "good": GOOD, "bad": None}]


def test_an_answer_that_changes_is_asked_until_it_is_decided(parts: Parts) -> None:
    """Every third run of a good set fails as well; one answer each would blame the wrong ones."""
    parts.breaks('has("e") or count % 3 == 0')
    found = parts.ask("--repeat", "3")
    assert names(found["culprits"]) == ["part-e"]
    assert max(row["runs"] for row in found["tried"]) > 3


def test_a_flaky_culprit_that_is_not_confirmed_is_looked_for_again(parts: Parts) -> None:
    # The third run, which is the first of the search, fails by chance: what it says falls at the confirmation.
    parts.breaks('has("a") or count == 3')
    found = parts.ask()
    assert names(found["culprits"]) == ["part-a"]


def test_an_advisory_that_blames_a_package_is_tried_first(parts: Parts) -> None:
    (parts.small.project.advisories / "VETTED-0001.toml").write_text(
        'id = "VETTED-0001"\nsummary = "h"\nseverity = "crash"\npublished = 2026-11-21\ndetails = "h"\n'
        'probes = ["works"]\nreferences = [{ type = "WEB", url = "https://example.invalid/h" }]\n'
        '[[affected]]\npackages = { part-h = ">=2", part-a = "*" }\n[[fix]]\nnote = "h"\n'
        '[evidence]\nkind = "executed"\nsays = "h"\n'
    )
    parts.breaks('has("h")')
    found = parts.ask()
    assert names(found["culprits"]) == ["part-h"]
    assert found["runs"] <= 7


def test_the_draft_is_a_valid_advisory_that_matches_the_bad_set_alone(parts: Parts) -> None:
    parts.breaks('has("b") and has("g")')
    found = parts.ask()
    path = Path(found["advisory"])
    assert path.name == "VETTED-0001.toml"
    drafted = tomlfile.read(Advisory, path, "draft")
    assert drafted.matches({"part-b": BAD, "part-g": BAD}) == "certain"
    assert drafted.matches({"part-b": BAD, "part-g": GOOD}) == "no"
    assert (drafted.probes, drafted.severity) == (["works"], "crash")
    assert drafted.shows_in("ValueError: it broke")
    assert [fix.packages for fix in drafted.fix] == [{"part-b": "==1.0"}, {"part-g": "==1.0"}]
    assert advisory.names(parts.small.project) == []
    assert drafted.references[0].url == draft.NOWHERE


@pytest.mark.parametrize(
    ("header", "url"),
    [
        (
            "Project-URL: Issues, https://example.org/a/issues\nHome-page: https://example.org/a",
            "https://example.org/a/issues",
        ),
        ("Home-page: https://example.org/a", "https://example.org/a"),
        ("Project-URL: Documentation, https://example.org/docs/a", draft.NOWHERE),
        ("Home-page: not a place", draft.NOWHERE),
    ],
)
def test_the_draft_names_where_the_culprit_takes_reports(parts: Parts, header: str, url: str) -> None:
    parts.wheel("part-h", BAD, [f"part-a\n{header}"])
    parts.breaks('has("h")')
    drafted = tomlfile.read(Advisory, Path(parts.ask()["advisory"]), "draft")
    assert drafted.references[0].url == url


def test_the_reproducer_shows_it_with_uv_alone(parts: Parts, tmp_path: Path) -> None:
    parts.breaks('has("d")')
    folder = Path(parts.ask()["reproducer"]).parent
    moved = folder.rename(tmp_path / "elsewhere")
    uv = Path(sys.executable).parent
    done = subprocess.run(
        [sys.executable, "-S", str(moved / "reproduce.py")],
        env={**os.environ, "PATH": f"{uv}:{os.environ['PATH']}", "UV_FIND_LINKS": str(parts.small.wheelhouse)},
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "good: passed\nbad: failed: ValueError: it broke\n"
    differing = set((moved / "bad.txt").read_text().splitlines()) - set((moved / "good.txt").read_text().splitlines())
    assert [line.split("==")[0] for line in differing] == ["part-d"]


def test_the_reproducer_patches_what_the_stack_patches(parts: Parts, tmp_path: Path) -> None:
    """The probe is green only where the stack's patch is; the upgrade has none."""
    make_wheel(parts.small.wheelhouse, "tiny-lib", "2.0", {"tiny_lib.py": LIBRARY})
    parts.suite("import tiny_lib\n" + condition('tiny_lib.greeting != "somebody"'))
    argv = ["bisect", "packages", "--good", TINY, "--bad", "tiny-lib==2.0", "--probe", "works", "--json"]
    answer = parts.command(parts.small.root, *argv)
    assert answer.code == 0, answer.err
    assert names(answer.json["culprits"]) == ["tiny-lib"]
    done = subprocess.run(
        [sys.executable, answer.json["reproducer"]],
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "UV_FIND_LINKS": str(parts.small.wheelhouse),
        },
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "good: passed\nbad: failed: ValueError: it broke\n"), done.stderr


def test_a_file_of_pins_may_be_moved_as_well(parts: Parts) -> None:
    parts.wheel("part-e", BAD, ["part-f>=2"])
    parts.breaks('has("e")')
    found = parts.ask("--bad", "part-e==2.0")
    assert (names(found["culprits"]), names(found["along"]), found["changes"]) == (["part-e"], ["part-f"], 2)


def test_any_command_will_do_in_place_of_a_probe(parts: Parts) -> None:
    code = "import part_c, sys; sys.exit('RuntimeError: c' if part_c.version == '2.0' else 0)"
    answer = parts.command(
        parts.small.root, "bisect", "packages", "--good", "good.txt", "--bad", "bad.txt", "--python", PYTHON,
        "--json", "--", "python", "-c", code,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert names(answer.json["culprits"]) == ["part-c"]
    assert (answer.json["fault"], answer.json["reason"]) == ("RuntimeError", "RuntimeError: c")
    assert tomlfile.read(Advisory, Path(answer.json["advisory"]), "draft").probes == []


def test_a_command_may_leave_folders_deeper_than_python_can_follow(parts: Parts) -> None:
    """Python's own removal of the environment ends in a RecursionError, or leaves them behind."""
    parts.pins(parts.bad, {**dict.fromkeys(NAMES, GOOD), "part-c": BAD})
    code = (
        "import os, part_c, sys\n"
        "os.chdir(sys.prefix)\n"
        "for _ in range(1200): os.mkdir('d'); os.chdir('d')\n"
        "sys.exit('RuntimeError: c' if part_c.version == '2.0' else 0)"
    )
    answer = parts.command(
        parts.small.root, "bisect", "packages", "--good", "good.txt", "--bad", "bad.txt", "--python", PYTHON,
        "--json", "--", "python", "-c", code,
    )  # fmt: skip
    assert answer.code == 0, answer.out + answer.err
    assert names(answer.json["culprits"]) == ["part-c"]
    assert list((parts.small.project.state / "host").iterdir()) == []


def test_a_command_that_hangs_or_cannot_say_is_an_outcome(parts: Parts) -> None:
    code = (
        "import part_c, part_d, sys, time\n"
        "if part_d.version == '2.0' and part_c.version != '2.0': sys.exit(125)\n"
        "if part_c.version == '2.0': time.sleep(60)"
    )
    answer = parts.command(
        parts.small.root, "bisect", "packages", "--good", "good.txt", "--bad", "bad.txt", "--python", PYTHON,
        "--time-limit", "1", "--json", "--", "python", "-c", code,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert (names(answer.json["culprits"]), answer.json["fault"]) == (["part-c"], "hang")


def test_the_bad_end_may_be_a_requirement_that_a_stack_is_moved_to(parts: Parts) -> None:
    make_wheel(parts.small.wheelhouse, "tiny-lib", "2.0", {"tiny_lib.py": "first = 1\n"}, ["part-a"])
    parts.suite("import importlib.metadata\n" + condition('importlib.metadata.version("tiny-lib") == "2.0"'))
    answer = parts.command(
        parts.small.root, "bisect", "packages", "--good", TINY, "--bad", "tiny-lib==2.0", "--probe", "works", "--json"
    )
    assert answer.code == 0, answer.err
    assert names(answer.json["culprits"]) == ["tiny-lib"]
    assert names(answer.json["along"]) == ["part-a"]


def test_what_was_answered_is_not_asked_again(parts: Parts) -> None:
    parts.breaks('has("f")')
    first = parts.ask()
    again = parts.ask()
    assert (again["runs"], again["culprits"]) == (0, first["culprits"])
    assert parts.count() == first["runs"]
    assert [row["earlier"] for row in again["tried"]] == [row["runs"] for row in first["tried"]]
    assert parts.ask("--fresh")["runs"] == first["runs"]


def test_killed_in_the_middle_it_goes_on_where_it_was(parts: Parts) -> None:
    parts.breaks('has("f")')
    whole = parts.ask()["runs"]
    parts.runs.unlink()
    with spawn(["-m", "builder", *parts.argv("--fresh")], parts.small.root) as child:
        deadline = time.monotonic() + 60
        while parts.count() < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(child.pid, signal.SIGKILL)
    assert parts.count() >= 3
    (journal,) = (parts.small.project.state / "bisect").glob("*.json")
    kept = sum(len(row["said"]) for row in json.loads(journal.read_text())["rows"].values())
    assert kept >= 2
    found = parts.ask()
    assert names(found["culprits"]) == ["part-f"]
    assert found["runs"] == whole - kept


def test_interrupted_it_says_how_to_go_on(parts: Parts) -> None:
    # The third run does not end by itself: however slow this machine is, there is something to interrupt.
    parts.suite("if count == 3: time.sleep(600)\n" + condition('has("f")'))
    with spawn(["-m", "builder", *parts.argv()], parts.small.root) as child:
        deadline = time.monotonic() + 60
        while parts.count() < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate()
    assert child.returncode == 130, err
    assert "interrupted: the same command goes on where it was" in err
    assert "verdict" in out.splitlines()[0]
    assert list(parts.small.project.scratch("bisect").parent.iterdir()) == []


def test_a_journal_that_was_damaged_is_begun_anew(parts: Parts) -> None:
    parts.breaks('has("f")')
    runs = parts.ask()["runs"]
    (journal,) = (parts.small.project.state / "bisect").glob("*.json")
    journal.write_text('{"lead": 1, "rows": {"x": {"said": 3}}}')
    assert parts.ask()["runs"] == runs


@pytest.mark.parametrize(
    ("broken", "said"), [("True", "is red on the good end already: ValueError"), ("False", "is green on the bad end")]
)
def test_ends_that_do_not_answer_as_they_should_end_with_1(parts: Parts, broken: str, said: str) -> None:
    parts.breaks(broken)
    assert said in parts.ask(code=1)["error"]["what"]


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--good", "nope", "there is no stack nope"),
        ("--bad", "controls/nope", "there is no control nope"),
        ("--bad", "part-a==", "nor a requirement"),
        ("--bad", "README.md", "not a pinned distribution"),
        ("--bad", "good.txt", "have the same distributions"),
    ],
)
def test_ends_that_cannot_be_read_end_with_3(parts: Parts, option: str, value: str, said: str) -> None:
    parts.breaks("True")
    assert said in parts.ask(option, value, code=3)["error"]["what"]


def test_neither_or_both_of_probe_and_command_end_with_2(parts: Parts) -> None:
    assert parts.command(parts.small.root, *parts.argv("--", "true")).code == 2


def test_people_see_what_was_tried_and_what_to_do_next(parts: Parts) -> None:
    parts.breaks('has("f")')
    answer = parts.command(parts.small.root, *parts.argv())
    assert answer.code == 0, answer.err
    assert "verdict" in answer.out.splitlines()[0]
    assert "8 packages changed; this one turns it red" in answer.out
    assert "  part-f 1.0 → 2.0\n" in answer.out
    assert "next: read and complete the draft" in answer.out
