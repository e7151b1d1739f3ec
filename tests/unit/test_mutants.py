"""Mutants: what a list may say, how one is made without touching what it is made of, and what a run comes to."""

from __future__ import annotations

import json
import py_compile
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.base import errors, sources
from builder.certify import hostenv, transcript
from tests.commands import Answer, spawn
from tests.conftest import ROOT, TINY, Small, make_wheel
from tests.mutants import __main__ as command_line
from tests.mutants import hunt, mutant
from tests.mutants.hunt import Baseline, Hunt, Verdict
from tests.mutants.mutant import Placed

SUMS = """\
SLOW = False


def add(a, b):
    return a + b


def twice(a):
    return add(a, a)
"""
LIBRARY = {"tiny_math/__init__.py": "", "tiny_math/sums.py": SUMS, "tiny_math/deep/sums.py": "FLAT = 1\n"}
PROBE = '''\
"""Does it add up?"""

from smoke.probe import Bound, Probe, Reading

PROBE = Probe(
    matters="nothing else does",
    bounds=(Bound("answer", "arithmetic", equals=4, headline=True),),
    links=("https://github.com/huggingface/trl",),
    needs=("tiny_math",),
    timeout_s=2,
)


def run(context):
    from tiny_math import sums

    while sums.SLOW:
        pass
    yield Reading("answer", sums.add(1, 3))
'''

ONE = {"id": "one", "package": "tiny-math", "file": "sums.py", "find": "a + b", "replace": "a - b", "why": "differs"}
SLOW = {**ONE, "id": "slow", "find": "SLOW = False", "replace": "SLOW = True"}
UNSEEN = {**ONE, "id": "unseen", "find": "return add(a, a)", "replace": "return a", "survives": "nobody doubles"}


def write_list(path: Path, *mutants: dict[str, str]) -> Path:
    """A list as TOML; what JSON calls a string is one in TOML, too."""
    lines = [line for one in mutants for line in ("[[mutant]]", *(f"{k} = {json.dumps(v)}" for k, v in one.items()))]
    path.write_text("\n".join(lines) + "\n")
    return path


def load(tmp_path: Path, *mutants: dict[str, str]) -> list[mutant.Mutant]:
    return mutant.load(write_list(tmp_path / "list.toml", *mutants), "list.toml")


def test_a_list_is_read(tmp_path: Path) -> None:
    (one,) = load(tmp_path, ONE)
    assert one.model_dump() == {**ONE, "survives": ""}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"find": ""}, "`mutant[1].find`: must say something"),
        ({"why": " "}, "`mutant[1].why`: must say something"),
        ({"file": "../tiny_math/sums.py"}, "`mutant[1].file`: '../tiny_math/sums.py' leaves the package"),
        ({"file": "/etc/passwd"}, "`mutant[1].file`: '/etc/passwd' leaves the package"),
        ({"id": "a/b"}, "`mutant[1].id`: "),
        ({"id": "one"}, "`mutant[1].id`: one is there twice"),
        ({"replace": "a + b"}, "`mutant[1].replace` (two): the same as `find`"),
        ({"raplace": "a"}, "`mutant[1].raplace`: unknown key; did you mean `replace`?"),
        ({"replace": None}, "`mutant[1].replace`: Field required"),
    ],
)
def test_what_is_wrong_in_a_list_is_named_by_file_key_and_mutant(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    two = {key: value for key, value in {**ONE, "id": "two", **change}.items() if value is not None}
    with pytest.raises(errors.BadInputError) as caught:
        load(tmp_path, ONE, two)
    assert f"list.toml: {said}" in caught.value.what
    assert "list.toml" in caught.value.next_step


@pytest.mark.parametrize("text", ["", "[[mutant]", "mutant = []", "[[other]]\nid = 'x'"])
def test_a_file_that_is_no_list_is_a_bad_input(tmp_path: Path, text: str) -> None:
    (tmp_path / "list.toml").write_text(text)
    with pytest.raises(errors.BadInputError, match=r"^list\.toml: "):
        mutant.load(tmp_path / "list.toml", "list.toml")
    with pytest.raises(errors.BadInputError, match="does not exist"):
        mutant.load(tmp_path / "none.toml", "none.toml")


def test_the_projects_own_list_is_long_enough_and_spread_over_the_stack() -> None:
    listed = mutant.load(ROOT / "tests" / "mutants.toml", "tests/mutants.toml")
    assert len(listed) >= 40
    packages = {"trl", "transformers", "peft", "bitsandbytes", "deepspeed", "accelerate", "vllm"}
    assert {one.package for one in listed} >= packages


@pytest.fixture
def calculator(wheels: Small) -> Small:
    """A small project with the real suite's runner, two probes, and a distribution that one of them looks at."""
    _, sha256 = make_wheel(wheels.wheelhouse, "tiny-math", "1.0", LIBRARY)
    with wheels.file("requirements.txt").open("a") as requirements:
        requirements.write(f"tiny-math==1.0 --hash=sha256:{sha256}\n")
    smoke = wheels.project.smoke
    shutil.rmtree(smoke)
    shutil.copytree(ROOT / "smoke", smoke, ignore=shutil.ignore_patterns("__pycache__", "probes"))
    (smoke / "probes").mkdir()
    (smoke / "probes" / "blind.py").write_text(PROBE.replace("sums.add(1, 3)", "4").replace("sums.SLOW", "False"))
    (smoke / "probes" / "sums.py").write_text(PROBE)
    hostenv.prepare(wheels.project, wheels.lock, wheels.scratch(), lambda _: None)
    return wheels


def site_packages(small: Small) -> Path:
    return hostenv.path(small.project, small.lock) / small.lock.site_packages


def place(small: Small, tmp_path: Path, **change: str) -> Placed:
    (placed,) = mutant.place(
        load(tmp_path, {**ONE, **change}), site_packages(small), small.lock.versions, "list.toml"
    )  # fmt: skip
    return placed


@pytest.mark.parametrize(
    ("package", "file"),
    [("tiny-math", "sums.py"), ("tiny_math", "sums.py"), ("Tiny.Math", "tiny_math/sums.py")],
)
def test_a_mutant_is_found_by_distribution_or_import_name(
    calculator: Small, tmp_path: Path, package: str, file: str
) -> None:
    placed = place(calculator, tmp_path, package=package, file=file)
    assert str(placed.file) == "tiny_math/sums.py"
    assert placed.content.decode() == SUMS.replace("a + b", "a - b")


def test_a_module_that_is_no_folder_is_found_too(calculator: Small, tmp_path: Path) -> None:
    placed = place(calculator, tmp_path, package="tiny-lib", file="tiny_lib.py", find="last = 3", replace="last = 4")
    assert str(placed.file) == "tiny_lib.py"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"find": "a * b"}, "`find` of one: must stand exactly once in tiny_math/sums.py of tiny-math 1.0, and is not"),
        ({"find": "add"}, "`find` of one: must stand exactly once in tiny_math/sums.py of tiny-math 1.0, and stands"),
        ({"file": "sum.py"}, "`file` of one: tiny-math 1.0 has no file sum.py"),
        ({"file": "flat/sums.py"}, "it has tiny_math/deep/sums.py, tiny_math/sums.py"),
        ({"file": "tiny_lib.py"}, "`file` of one: tiny-math 1.0 has no file tiny_lib.py"),
        ({"package": "tiny-meth"}, "`package` of one: tiny-meth is neither a distribution in the lock nor a folder of"),
        ({"package": "smuggled"}, "`package` of one: smuggled is neither a distribution in the lock"),
        ({"replace": "a +"}, "`replace` of one: tiny_math/sums.py is no Python any more, line 5"),
    ],
)
def test_a_mutant_without_its_one_place_is_a_bad_input(
    calculator: Small, tmp_path: Path, change: dict[str, str], said: str
) -> None:
    (site_packages(calculator) / "smuggled").mkdir()
    (site_packages(calculator) / "smuggled" / "sums.py").write_text(SUMS)
    with pytest.raises(errors.BadInputError) as caught:
        place(calculator, tmp_path, **change)
    assert said in caught.value.what
    assert "list.toml" in caught.value.next_step


def answer_of(environment: Path) -> str:
    program = "from tiny_math import sums; print(sums.add(1, 3))"
    done = subprocess.run(
        [str(environment / "bin" / "python"), "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_mutant_is_made_beside_what_it_is_made_of(calculator: Small, tmp_path: Path) -> None:
    environment = hostenv.path(calculator.project, calculator.lock)
    clone = tmp_path / "clone"
    mutant.clone(environment, clone)
    mutant.make(place(calculator, tmp_path), clone / calculator.lock.site_packages)
    changed, original = (folder / calculator.lock.site_packages / "tiny_math" for folder in (clone, environment))
    assert (original / "sums.py").read_text() == SUMS
    assert (changed / "sums.py").read_text() == SUMS.replace("a + b", "a - b")
    assert (changed / "__init__.py").samefile(original / "__init__.py")  # shared: a clone costs no space
    assert (answer_of(environment), answer_of(clone)) == ("4", "-2")
    mutant.undo(place(calculator, tmp_path), changed.parent, original.parent)
    assert (changed / "sums.py").samefile(original / "sums.py")
    assert answer_of(clone) == "4"
    assert list(changed.glob("*.mutant")) == []


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode))
def test_bytecode_of_the_original_does_not_hide_the_mutant(
    calculator: Small, tmp_path: Path, mode: py_compile.PycInvalidationMode
) -> None:
    """Not even when the change alters neither the time nor the size of the source."""
    environment = hostenv.path(calculator.project, calculator.lock)
    original = site_packages(calculator) / "tiny_math" / "sums.py"
    compiling = (
        f"import py_compile as p; p.compile({str(original)!r}, invalidation_mode=p.PycInvalidationMode({mode.value}))"
    )
    subprocess.run([str(environment / "bin" / "python"), "-c", compiling], check=True)
    kept = {path: path.read_bytes() for path in original.parent.glob("__pycache__/sums.*.pyc")}
    assert kept
    clone = tmp_path / "clone"
    mutant.clone(environment, clone)
    mutant.make(place(calculator, tmp_path), clone / calculator.lock.site_packages)
    assert answer_of(clone) == "-2"
    assert {path: path.read_bytes() for path in kept} == kept


Mutants = Callable[..., Answer]


@pytest.fixture
def mutants(calculator: Small, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Mutants:
    """Run the command on the small project with a list of these mutants."""

    def run(*listed: dict[str, str], options: tuple[str, ...] = ()) -> Answer:
        path = write_list(calculator.root / "mutants.toml", *listed)
        monkeypatch.chdir(calculator.root)
        argv = ["mutants", "--file", str(path), "--stack", TINY, *options]
        monkeypatch.setattr(sys, "argv", argv)
        capsys.readouterr()
        code: object = 0
        try:
            command_line.main()
        except SystemExit as ended:
            code = ended.code
        printed = capsys.readouterr()
        return Answer(code if isinstance(code, int) else 0, printed.out, printed.err)

    return run


def leftovers(small: Small) -> list[Path]:
    return [path for path in (small.project.state / "tmp").glob("*") if path.name != TINY]


def test_a_run_tells_the_killed_from_the_survivors(mutants: Mutants, calculator: Small) -> None:
    answer = mutants(ONE, SLOW, UNSEEN, options=("--json", "--output", "docs/evidence/mutants.json"))
    assert (answer.code, answer.err) == (1, "")  # 2 of 3 are not enough
    assert json.loads((calculator.root / "docs/evidence/mutants.json").read_text()) == answer.json
    assert answer.json["total"] == {"mutants": 3, "killed": 2, "rate": 0.6667}
    assert answer.json["packages"] == {"tiny-math": answer.json["total"]}
    assert answer.json["suite"] == sources.digest(calculator.project.smoke)
    assert answer.json["lock"] == calculator.lock.digest
    assert answer.json["command"] == (
        f"./nox -s mutants -- --file mutants.toml --stack {TINY} --json --output docs/evidence/mutants.json"
    )
    one, slow, unseen = answer.json["mutants"]
    assert (one["outcome"], one["by"]) == ("killed", "sums")
    assert one["reason"] == "failed: answer is -2, must be exactly 4"
    assert (slow["outcome"], slow["by"]) == ("killed", "sums")
    assert slow["reason"] == "timeout: still running after 2 s"
    assert (unseen["outcome"], unseen["why"]) == ("survived", "differs")
    assert unseen["reason_survived"] == "nobody doubles"
    assert (site_packages(calculator) / "tiny_math" / "sums.py").read_text() == SUMS
    assert leftovers(calculator) == []


def test_one_mutant_leaves_nothing_to_the_next(mutants: Mutants) -> None:
    many = [{**ONE, "id": f"{number}", "find": find, "replace": replace} for number, (find, replace) in enumerate([
        ("a + b", "a - b"), ("return add(a, a)", "return a + a"), ("a + b", "a * b"), ("SLOW = False", "SLOW = 0"),
    ])]  # fmt: skip
    answer = mutants(*many, options=("--jobs", "1", "--json"))
    outcomes = [one["outcome"] for one in answer.json["mutants"]]
    assert outcomes == ["killed", "survived", "killed", "survived"]


def test_people_read_one_line_for_each_and_a_table(mutants: Mutants) -> None:
    answer = mutants(ONE, UNSEEN)
    assert "killed   one by sums (" in answer.out
    assert "survived unseen (" in answer.out
    assert re.search(r"tiny-math +2 +1 +50%", answer.out)
    assert "survived unseen: nobody doubles" in answer.out
    assert "50.0% killed, 90% asked" in answer.out


def test_enough_killed_is_a_success(mutants: Mutants) -> None:
    assert mutants(ONE).code == 0
    assert mutants(ONE, UNSEEN, options=("--only", "one")).code == 0


def test_what_is_known_is_not_run_again(mutants: Mutants, calculator: Small) -> None:
    assert "killed   one by sums (" in mutants(ONE).out
    renamed = {**ONE, "id": "uno", "why": "still differs"}
    assert "killed   uno by sums (earlier)" in mutants(renamed).out  # what it is called does not count
    assert "(earlier)" not in mutants({**ONE, "replace": "a * b"}).out
    probe = calculator.project.smoke / "probes" / "sums.py"
    probe.write_text(PROBE + "# another suite\n")
    assert "(earlier)" not in mutants(ONE).out


def test_a_suite_that_fails_without_a_mutant_kills_none(mutants: Mutants, calculator: Small) -> None:
    (calculator.project.smoke / "probes" / "sums.py").write_text(PROBE.replace("equals=4", "equals=5"))
    answer = mutants(ONE)
    assert answer.code == 1
    assert "without any mutant, the suite fails already:\nsums: failed: answer is 4" in answer.err
    assert not (calculator.project.state / "mutants").exists()


def test_a_suite_that_cannot_run_here_kills_none(mutants: Mutants, calculator: Small) -> None:
    for probe in calculator.project.smoke.glob("probes/*.py"):
        probe.write_text(probe.read_text().replace('needs=("tiny_math",)', 'needs=("no_such_package",)'))
    assert "no probe runs on this machine" in mutants(ONE).err


@pytest.mark.parametrize(
    ("change", "options", "code"),
    [
        ({"file": "../x.py"}, (), 3),
        ({"find": "a * b"}, (), 3),
        ({"package": "torch"}, (), 3),
        ({}, ("--only", "two"), 3),
        ({}, ("--jobs", "0"), 2),
        ({}, ("--stack", "other"), 3),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_runs(
    mutants: Mutants, calculator: Small, change: dict[str, str], options: tuple[str, ...], code: int
) -> None:
    answer = mutants({**ONE, **change}, options=options)
    assert (answer.code, answer.out) == (code, "")
    assert "Traceback" not in answer.err
    assert not (calculator.project.state / "mutants").exists()


class Notes:
    """A watcher that remembers the events of one run."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def started(self, name: str) -> None:
        self.events = [name]

    def event(self, name: str, event: transcript.Event) -> None:
        assert name == self.events[0]
        self.events.append(" ".join(str(event[key]) for key in ("event", "probe") if key in event))

    def finished(self, name: str, verdict: Verdict | None, remembered: bool) -> None:
        pass


def test_the_first_red_probe_ends_the_run(calculator: Small, tmp_path: Path) -> None:
    notes = Notes()
    hunting = Hunt(calculator.project, calculator.lock, calculator.scratch(), notes)
    hunting.adopt(hostenv.path(calculator.project, calculator.lock))
    hunting.baseline()
    assert notes.events[-1] == "finish"
    baseline = Baseline(probes={"sums": 0.1, "blind": 5.0}, seconds=5.1)
    verdicts = hunting.run([place(calculator, tmp_path)], baseline, jobs=2)
    assert verdicts["one"].by == "sums"
    assert notes.events[-1] == "end sums"
    assert "begin blind" not in notes.events


def test_the_probe_that_kills_most_in_a_second_comes_first() -> None:
    baseline = Baseline(probes={"slow": 9.0, "quick": 1.0, "middle": 2.0}, seconds=12.0)
    assert hunt._order(baseline, []) == ("quick", "middle", "slow")
    kills = [Verdict(outcome="killed", by=by, seconds=1.0) for by in ("middle", "middle", "slow")]
    survived = Verdict(outcome="survived", seconds=1.0)
    assert hunt._order(baseline, [*kills, survived]) == ("middle", "quick", "slow")


def test_a_probe_that_no_longer_applies_has_not_killed(calculator: Small, mutants: Mutants) -> None:
    """Not run is not passed, and it is not failed either."""
    text = PROBE.replace("Probe, Reading", "Probe, Reading, Skip").replace(
        "    while sums", "    if sums.SLOW:\n        raise PROBE.skips[0]()\n    while sums"
    )
    text = text.replace("    timeout_s=2,", '    skips=(Skip("no such option"),),\n    timeout_s=2,')
    (calculator.project.smoke / "probes" / "sums.py").write_text(text)
    assert "survived slow (" in mutants(SLOW).out


def test_a_run_that_was_killed_goes_on_where_it_was(calculator: Small) -> None:
    many = [{**SLOW, "id": f"slow-{number}", "replace": f"SLOW = {number}"} for number in range(1, 5)]
    path = write_list(calculator.root / "mutants.toml", ONE, *many)
    argv = ["-m", "tests.mutants", "--file", str(path), "--stack", TINY, "--jobs", "1"]
    with spawn(argv, calculator.root) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("killed   one")
        time.sleep(0.5)
        child.send_signal(signal.SIGKILL)
    assert leftovers(calculator) != []
    with spawn([*argv, "--only", "one"], calculator.root) as child:
        out, _ = child.communicate()
    assert out.startswith("killed   one by sums (earlier)")
    assert leftovers(calculator) == []
