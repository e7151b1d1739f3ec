"""Controls as they are written and locked: the bad set, its twin, and what is refused."""

from __future__ import annotations

import tomllib

import pytest

from builder.base import errors
from builder.base.project import Project
from builder.certify import control
from builder.intent import stack
from builder.lock import lockfile
from tests.conftest import PATCH, Small
from tests.engine import test_old_torch
from tests.unit.certify.conftest import BY_PATCH, BY_VERSION, CONTROL, NAME, write


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
