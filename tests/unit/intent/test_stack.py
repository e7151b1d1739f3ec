"""stack.toml: what a person may write, and what they read when it is wrong."""

from __future__ import annotations

import pytest

from builder.base import errors
from builder.base.project import Project
from builder.intent import stack
from builder.intent.platform import AMD64, ARM64
from builder.lock import lockfile
from tests.commands import vetted
from tests.conftest import PATCH, PYTHON, TINY, Small

WHERE = f"lockfiles/{TINY}/stack.toml"
REQUIRES = 'requires = ["tiny-lib==1.0"]'
PACKAGE = 'package = "tiny-lib"'
TITLE = 'title = "Tiny"'


def load_bad(small: Small) -> errors.BadInputError:
    with pytest.raises(errors.BadInputError) as caught:
        stack.load(small.project, TINY)
    assert caught.value.exit_code == 3
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (TITLE, 'title = "Tiny"\ncolour = "red"', "colour"),
        (TITLE, "", "title"),
        (TITLE, "title = 7", "title"),
        (TITLE, 'title = "  "', "title"),
        (TITLE, 'title = "Tiny\\nUSER root"', "title"),
        (TITLE, 'title = "Ti\\u001b[31mny"', "title"),
        ('device = "cpu"', 'device = "tpu"', "device"),
        ('debian = "bookworm"', 'debian = "sid"', "debian"),
        ('python = "', 'python = "2.7 or ', "python"),
        (REQUIRES, "requires = []", "requires"),
        (REQUIRES, 'requires = "tiny-lib==1.0"', "requires"),
        (REQUIRES, 'requires = ["tiny-lib=1.0"]', "requires[0]"),
        (REQUIRES, 'requires = ["tiny-lib==1.0", "other=>2"]', "requires[1]"),
        (REQUIRES, 'requires = ["tiny-lib>=1.0"]', "requires[0]"),
        (REQUIRES, 'requires = ["tiny-lib~=1.0"]', "requires[0]"),
        (REQUIRES, 'requires = ["tiny-lib==1.*"]', "requires[0]"),
        (REQUIRES, 'requires = ["tiny-lib==1.0,!=1.1"]', "requires[0]"),
        (REQUIRES, 'requires = ["tiny-lib @ file:///tmp/tiny.whl"]', "requires[0]"),
        (REQUIRES, 'requires = ["tiny-lib==1.0\\nother"]', "requires[0]"),
        (REQUIRES, 'requires = ["tiny-lib==1.0\\n"]', "requires[0]"),
        (REQUIRES, 'requires = [""]', "requires[0]"),
        ('requirement = "unwanted ;', 'requirement = "un wanted ;', "override[0].requirement"),
        ('requirement = "unwanted ;', 'requirement = "unwanted @ git+ssh://x ;', "override[0].requirement"),
        ('reason = "nothing here needs it"', 'reason = ""', "override[0].reason"),
        ('reason = "nothing here needs it"', 'reason = "needs\\u0000it"', "override[0].reason"),
        ('reason = "nothing here needs it"', "", "override[0].reason"),
        ('reason = "it greets nobody"', 'reason = " "', "patch[0].reason"),
        (PACKAGE, 'package = "tiny/lib"', "patch[0].package"),
        (PACKAGE, 'package = "../lib"', "patch[0].package"),
        (PACKAGE, 'package = "tiny\\nlib"', "patch[0].package"),
        (PACKAGE, 'package = "tiny-lib\\n"', "patch[0].package"),
        (PACKAGE, 'package = ""', "patch[0].package"),
        (f'"{PATCH}"', '"images/patches/../../etc/0001-x.patch"', "patch[0].file"),
        (f'"{PATCH}"', '"/images/patches/tiny-lib/1.0/0001-x.patch"', "patch[0].file"),
        (f'"{PATCH}"', '"smoke/0001-x.patch"', "patch[0].file"),
        (f'"{PATCH}"', '"images/patches/tiny-lib/0001-x.patch"', "patch[0].file"),
        (f'"{PATCH}"', '"images/patches/tiny-lib/1.0/0001-x.diff"', "patch[0].file"),
        (f'"{PATCH}"', '"images/patches/tiny-lib/1.0/0001 -o x.patch"', "patch[0].file"),
        (f'"{PATCH}"', '"images/patches/tiny-lib/1.0/0001\\n.patch"', "patch[0].file"),
        (f'"{PATCH}"', '"images/patches/tiny-lib/1.0/0002-missing.patch"', "patch[0].file"),
    ],
)
def test_a_mistake_is_named_by_file_and_key_with_a_fix(small: Small, old: str, new: str, key: str) -> None:
    small.edit("stack.toml", old, new)
    error = load_bad(small)
    assert f"{WHERE}: `{key}`: " in error.what
    assert WHERE in error.next_step
    assert "Traceback" not in str(error)


@pytest.mark.parametrize(
    ("old", "new", "meant"),
    [
        ("requires =", "require =", "requires"),
        ("\ndevice =", "\ndevise =", "device"),
        ('reason = "nothing', 'reasons = "nothing', "reason"),
        (f'file = "{PATCH}"', f'fil = "{PATCH}"', "file"),
    ],
)
def test_a_misspelt_key_is_answered_with_the_key_that_was_meant(small: Small, old: str, new: str, meant: str) -> None:
    small.edit("stack.toml", old, new)
    assert f"unknown key; did you mean `{meant}`?" in load_bad(small).what


def test_an_unknown_key_like_no_other_lists_the_known_ones(small: Small) -> None:
    small.edit("stack.toml", TITLE, f"{TITLE}\nxyzzy = 1")
    error = load_bad(small)
    assert "unknown key; known: title, device, python, debian, platforms, requires, override, patch" in error.what
    assert error.next_step == f"rename or remove `xyzzy` in {WHERE}"


def test_every_mistake_is_listed_at_once(small: Small) -> None:
    small.edit("stack.toml", 'device = "cpu"', 'device = "tpu"')
    small.edit("stack.toml", REQUIRES, 'requires = ["tiny-lib>=1.0"]')
    what = load_bad(small).what
    assert f"{WHERE}: `device`: " in what
    assert f"{WHERE}: `requires[0]`: " in what


def test_a_missing_patch_is_named_with_both_ways_out(small: Small) -> None:
    small.patch.unlink()
    error = load_bad(small)
    assert f"`patch[0].file`: {PATCH} does not exist" in error.what
    assert error.next_step == f"add {PATCH}, or remove that [[patch]] from {WHERE}"


@pytest.mark.parametrize("content", [b"title = \n", b"<<<<<<< ours\n", b'title = "\xff\xfe"\n', b"\x00"])
def test_a_file_that_is_not_toml_is_named(small: Small, content: bytes) -> None:
    small.file("stack.toml").write_bytes(content)
    error = load_bad(small)
    assert error.what.startswith((f"{WHERE}: not TOML: ", f"{WHERE}: not UTF-8 text: "))
    assert error.next_step == f"correct {WHERE}"


def test_a_misspelt_stack_is_answered_with_the_one_that_was_meant(small: Small) -> None:
    with pytest.raises(errors.BadInputError, match=f"there is no stack tinny: .*did you mean {TINY}\\?") as caught:
        stack.load(small.project, "tinny")
    assert caught.value.next_step == "vetted list"


@pytest.mark.parametrize("name", ["../tiny", "tiny/../tiny", "/tiny", "tiny\n", "ti\nny", "", ".", "..", "Tiny", "-x"])
def test_a_name_that_could_leave_its_folder_is_no_stacks_name(small: Small, name: str) -> None:
    with pytest.raises(errors.BadInputError, match="is not a stack's name") as caught:
        stack.load(small.project, name)
    assert caught.value.next_step == "vetted list"


def test_a_good_file_is_read_as_it_was_written(small: Small) -> None:
    read = stack.load(small.project, TINY)
    assert (read.title, read.device, read.debian) == ("Tiny", "cpu", "bookworm")
    assert read.packages == {"tiny-lib": "tiny-lib==1.0"}
    assert [override.package for override in read.override] == ["unwanted"]
    assert [patch.file for patch in read.patch] == [PATCH]


@pytest.mark.parametrize(
    ("torch", "backend"),
    [("torch==2.13.0+cpu", "cpu"), ("torch==2.13.0+cu130", "cu130"), ("torch==2.13.0", None), ("torch", None)],
)
def test_the_local_version_of_torch_names_its_index(small: Small, torch: str, backend: str | None) -> None:
    small.edit("stack.toml", REQUIRES, f'requires = ["{torch}"]')
    assert stack.load(small.project, TINY).torch_backend == backend


def test_every_stack_of_the_project_loads(real: Project) -> None:
    names = stack.names(real)
    assert names
    assert [name for name in names if not stack.load(real, name).requires] == []


def test_a_python_version_in_foreign_digits_is_refused(small: Small) -> None:
    small.edit("stack.toml", f'python = "{PYTHON}"', 'python = "3.\u0661"')
    assert "`python`" in load_bad(small).what


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        ("requires =", "require =", "did you mean `requires`?"),
        (TITLE, 'title = "Tiny\\nUSER root"', "`title`"),
        (f'"{PATCH}"', '"images/patches/../../x.patch"', "`patch[0].file`"),
    ],
)
def test_the_command_ends_with_3_and_the_mistake(small: Small, old: str, new: str, mistake: str) -> None:
    small.edit("stack.toml", old, new)
    answer = vetted(small.root, "lock", "--check", TINY)
    assert answer.code == 3
    assert answer.out == ""
    assert mistake in answer.err
    assert WHERE in answer.err
    assert "next: " in answer.err


@pytest.mark.parametrize(
    "value", ['["arm64"]', '["arm64", "amd64"]', '["amd64", "amd64"]', '["amd64", "riscv64"]', "[]"]
)
def test_platforms_begin_with_the_one_that_certificates_are_for(small: Small, value: str) -> None:
    small.edit("stack.toml", TITLE, f"{TITLE}\nplatforms = {value}")
    assert "`platforms" in load_bad(small).what


def test_a_stack_can_be_narrowed_to_one_platform(small: Small) -> None:
    assert stack.load(small.project, TINY).platform is AMD64
    small.edit("stack.toml", TITLE, f'{TITLE}\nplatforms = ["amd64", "arm64"]')
    both = stack.load(small.project, TINY)
    assert both.platform is AMD64 and both.on(ARM64).platform is ARM64
    assert lockfile.intent(both) == lockfile.intent(both.on(ARM64))
