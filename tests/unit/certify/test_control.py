"""Controls: what must fail fails for the right reason, its twin passes, and everything else is said."""

from __future__ import annotations

import json
import tomllib

import pytest

from builder.base import errors, sources
from builder.base.project import Project
from builder.certify import control
from builder.certify.certificate import ProbeResult
from builder.certify.control import ControlResult, Side
from builder.intent import stack
from builder.lock import lockfile
from tests.conftest import LIBRARY, PATCH, PYTHON, RUNNER, Small, make_wheel
from tests.engine import test_old_torch
from tests.unit.conftest import Command

NAME = "rude"
CONTROL = f"""\
title = "Tiny 1.0 greets nobody"
device = "cpu"
python = "{PYTHON}"
debian = "bookworm"
requires = ["tiny-lib==1.0"]

[expect]
fails = ["greeting"]
reason = "nobody"
twin = {{ tiny-lib = "2.0" }}
"""
BY_VERSION = 'twin = { tiny-lib = "2.0" }'
BY_PATCH = f'patch = "{PATCH}"'
# Asks two probes; the second is a true defect of both sides.
SUITE = (
    RUNNER
    + """\
import tiny_lib
probes = request["probes"] or ["greeting", "other"]
say("start", probes=probes, python="3.11.2")
if "greeting" in probes:
    good = tiny_lib.greeting == "somebody"
    end("greeting", "passed" if good else "failed", reason=None if good else f"it greets {tiny_lib.greeting}")
if "other" in probes:
    end("other", "failed", reason="something else")
say("finish")
"""
)


@pytest.fixture
def rude(wheels: Small) -> Small:
    """A project with a control whose wheels are all there."""
    make_wheel(wheels.wheelhouse, "tiny-lib", "1.0", {"tiny_lib.py": "greeting = 'nobody'\n"})
    make_wheel(wheels.wheelhouse, "tiny-lib", "2.0", {"tiny_lib.py": "greeting = 'somebody'\n"})
    write(wheels, CONTROL)
    (wheels.project.smoke / "__main__.py").write_text(SUITE)
    return wheels


def write(small: Small, text: str) -> None:
    folder = small.project.control_dir(NAME)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stack.toml").write_text(text)


@pytest.fixture
def locked(rude: Small) -> Small:
    assert control.make(rude.project, NAME, rude.scratch())
    return rude


@pytest.fixture
def patched(rude: Small) -> Small:
    """A control that a patch makes good, locked; the patch says `somebody` in the second line."""
    make_wheel(rude.wheelhouse, "tiny-lib", "1.0", {"tiny_lib.py": LIBRARY})
    write(rude, CONTROL.replace(BY_VERSION, BY_PATCH))
    assert control.make(rude.project, NAME, rude.scratch())
    return rude


def test_the_twin_is_the_same_set_with_one_distribution_changed(locked: Small) -> None:
    pair = control.load(locked.project, NAME)
    assert (pair.bad.versions, pair.twin.versions) == ({"tiny-lib": "1.0"}, {"tiny-lib": "2.0"})
    assert pair.bad.digest != pair.twin.digest
    assert not control.make(locked.project, NAME, locked.scratch())


def test_a_twin_may_be_the_same_set_patched(patched: Small) -> None:
    pair = control.load(patched.project, NAME)
    assert pair.bad.python == pair.twin.python
    assert (pair.bad.patches, pair.twin.patches) == ((), (patched.patch,))
    assert pair.bad.digest != pair.twin.digest
    assert not (patched.project.control_dir(NAME) / "twin.txt").exists()
    assert not control.make(patched.project, NAME, patched.scratch())


def test_a_patch_of_the_control_itself_stays_on_its_twin(patched: Small) -> None:
    own = "images/patches/tiny-lib/1.0/0000-own.patch"
    (patched.root / own).write_text(patched.patch.read_text())
    table = f'[[patch]]\npackage = "tiny-lib"\nfile = "{own}"\nreason = "needed by the probe"\n\n[expect]'
    write(patched, CONTROL.replace(BY_VERSION, f'patch = ["{PATCH}"]').replace("[expect]", table))
    pair = control.load(patched.project, NAME)
    assert [path.name for path in pair.bad.patches] == ["0000-own.patch"]
    assert [path.name for path in pair.twin.patches] == ["0000-own.patch", "0001-greet.patch"]


def test_a_patched_twin_is_run_and_judged(patched: Small, command: Command) -> None:
    answer = command(patched.root, "controls", "--json")
    assert answer.code == 0
    (row,) = answer.json["rows"]
    assert (row["caught"], row["false_alarm"]) == (True, False)
    assert (row["twin"], row["patches"]) == ("tiny-lib/1.0/0001-greet.patch", [PATCH])
    assert row["control_lock"] != row["twin_lock"]


def test_the_lock_of_a_twin_that_became_a_patch_goes(locked: Small) -> None:
    write(locked, CONTROL.replace(BY_VERSION, BY_PATCH))
    assert control.make(locked.project, NAME, locked.scratch())
    assert not (locked.project.control_dir(NAME) / "twin.txt").exists()
    control.load(locked.project, NAME)


def test_a_control_that_was_changed_after_it_was_locked_is_refused(locked: Small) -> None:
    write(locked, CONTROL.replace('"2.0"', '"1.0.post1"'))
    with pytest.raises(errors.BadInputError, match="changed after it was locked") as caught:
        control.load(locked.project, NAME)
    assert caught.value.next_step == f"vetted controls {NAME} --lock"


def test_a_control_that_was_never_locked_is_refused(rude: Small) -> None:
    with pytest.raises(errors.BadInputError, match="missing"):
        control.load(rude.project, NAME)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('fails = ["greeting"]', "fails = []", "expect.fails"),
        ('fails = ["greeting"]', 'fails = ["Greeting!"]', "expect.fails"),
        ('reason = "nobody"', 'reason = ""', "expect.reason"),
        ('tiny-lib = "2.0"', 'tiny-lib = "2.0", other = "1"', "expect.twin"),
        ('tiny-lib = "2.0"', 'tiny-lib = ">=2.0"', "expect.twin"),
        ('tiny-lib = "2.0"', "", "expect.twin"),
        (BY_VERSION, "", "`expect`: exactly one of `twin` and `patch`"),
        (BY_VERSION, f"{BY_VERSION}\n{BY_PATCH}", "`expect`: exactly one of `twin` and `patch`"),
        (BY_VERSION, "patch = []", "expect.patch"),
        (BY_VERSION, 'patch = ""', "expect.patch[0]"),
        (BY_VERSION, 'patch = "images/patches/0001-greet.patch"', "<package>/<version>"),
        (BY_VERSION, 'patch = ["images/patches/../../etc/passwd"]', "expect.patch[0]"),
        (BY_VERSION, 'patch = "images/patches/tiny-lib/1.0/0002-x.patch"', "`expect.patch[0]`: images/patches/"),
        ("[expect]", "[expected]", "expected"),
        ("fails = [", "fail = [", "did you mean `fails`"),
    ],
)
def test_a_control_that_expects_nothing_clear_is_refused(rude: Small, old: str, new: str, message: str) -> None:
    assert old in CONTROL
    write(rude, CONTROL.replace(old, new))
    with pytest.raises(errors.BadInputError, match=r"stack\.toml") as caught:
        stack.load_control(rude.project, NAME)
    assert message in str(caught.value)


def test_a_control_is_no_stack(locked: Small) -> None:
    assert NAME not in stack.names(locked.project)
    assert stack.control_names(locked.project) == [NAME]


def test_both_sides_are_run_and_judged(locked: Small, command: Command) -> None:
    answer = command(locked.root, "controls")
    assert answer.code == 0
    assert "1 of 1 controls caught" in answer.out
    assert "false alarms  0 on 1 twins" in answer.out
    assert not list((locked.project.state / "host").glob("*")), "no environment is left behind"


def test_every_probe_is_run_when_asked_and_other_reds_are_said(locked: Small, command: Command) -> None:
    answer = command(locked.root, "controls", NAME, "--full")
    assert answer.code == 0
    assert "on the control also other: something else" in answer.out
    assert "on the twin also other: something else" in answer.out


def test_a_control_that_passes_is_a_no(locked: Small, command: Command) -> None:
    (locked.project.smoke / "__main__.py").write_text(SUITE.replace('== "somebody"', "!= 5"))
    answer = command(locked.root, "controls")
    assert answer.code == 1
    assert "0 of 1 controls caught" in answer.out
    assert "rude: must fail greeting, saying 'nobody'" in answer.out


def test_a_twin_that_fails_is_a_false_alarm(locked: Small, command: Command) -> None:
    (locked.project.smoke / "__main__.py").write_text(SUITE.replace('== "somebody"', "== 5"))
    answer = command(locked.root, "controls", "--json")
    assert answer.code == 1
    assert (answer.json["caught"], answer.json["false_alarms"]) == (1, 1)


def test_the_evidence_is_recorded_on_demand(locked: Small, command: Command) -> None:
    assert command(locked.root, "controls", "--record").code == 0
    document = json.loads((locked.root / "docs" / "evidence" / "controls.json").read_text())
    assert document["suite"] == sources.digest(locked.project.smoke)
    assert document["command"] == "vetted controls --record"
    assert (document["sensitivity"], document["false_alarms"]) == (1.0, 0)
    (row,) = document["rows"]
    assert (row["control"], row["twin"], row["caught"]) == (NAME, "tiny-lib 2.0", True)


def test_an_unknown_control_is_named_with_the_closest(locked: Small, command: Command) -> None:
    answer = command(locked.root, "controls", "rudee")
    assert answer.code == 3
    assert "did you mean rude?" in answer.err


def result(
    bad: str, twin: str, reason: str = "it greets nobody", fails: tuple[str, ...] = ("greeting",)
) -> ControlResult:
    def side(outcome: str) -> Side:
        return Side(
            "sha256:", (ProbeResult.model_validate({"name": "greeting", "outcome": outcome, "reason": reason}),)
        )

    return ControlResult(NAME, "", fails, "nobody", "tiny-lib 2.0", side(bad), side(twin))


@pytest.mark.parametrize("outcome", ["failed", "crashed", "timeout", "oom"])
def test_red_is_red_however_it_ended(outcome: str) -> None:
    assert result(outcome, "passed").good


def test_red_for_another_reason_is_not_caught() -> None:
    assert not result("failed", "passed", "ModuleNotFoundError").caught


def test_not_run_is_neither_caught_nor_passed() -> None:
    assert not result("not-run", "passed").caught
    assert result("failed", "not-run").false_alarm


def test_a_probe_without_a_result_is_neither_caught_nor_passed() -> None:
    both = result("failed", "passed", fails=("greeting", "missing"))
    assert not both.caught
    assert both.false_alarm


def test_the_projects_own_controls_are_locked_and_differ_in_one_distribution_or_in_patches(real: Project) -> None:
    names = stack.control_names(real)
    assert len(names) >= 8
    for name in names:
        pair = control.load(real, name)
        expect = pair.control.expect
        changed = {
            key
            for key in pair.bad.versions.keys() | pair.twin.versions.keys()
            if pair.bad.versions.get(key) != pair.twin.versions.get(key)
        }
        assert changed == {lockfile.normalise(key) for key in expect.twin or {}}
        added = [str(path.relative_to(real.root)) for path in pair.twin.patches[len(pair.bad.patches) :]]
        assert added == (expect.patch or [])
        assert {lockfile.normalise(patch.package) for patch in pair.twin.stack.patch} <= pair.twin.versions.keys()
        probes = {file.stem.replace("_", "-") for file in (real.smoke / "probes").glob("*.py")}
        assert set(expect.fails) <= probes
        text = (real.control_dir(name) / "stack.toml").read_text()
        assert tomllib.loads(text)["title"] == pair.control.title


def test_every_patch_of_trl_and_transformers_has_a_control_that_shows_what_it_repairs(real: Project) -> None:
    """Other patches are for a CPU's own defects, and their stack is certified with the probes that show them."""
    shown = {file for name in stack.control_names(real) for file in stack.load_control(real, name).expect.patch or ()}
    folder = real.root / "images" / "patches"
    written = {
        path.relative_to(real.root).as_posix() for of in ("trl", "transformers") for path in folder.glob(f"{of}/*/*")
    }
    assert shown == written - {f"images/patches/{case.patch}" for case in test_old_torch.CASES}
