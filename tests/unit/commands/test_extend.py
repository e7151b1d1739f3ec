"""Own packages on a stack: what is written, what is refused and in which words, and that the parent stays as it is."""

from __future__ import annotations

import errno
import tomllib
from pathlib import Path

import pytest

from builder.lock import archives, audit, lockfile, resolve
from tests.conftest import TINY, make_wheel
from tests.unit.commands.conftest import MINE, Shop


def test_own_packages_are_locked_beside_the_parent_which_stays_as_it_is(shop: Shop) -> None:
    parent, before = (
        shop.small.lock,
        {path: path.read_bytes() for path in shop.small.file("").iterdir() if path.is_file()},
    )
    shop.offer("needed", "3.0")
    shop.offer("extra", "2.0", "needed", "tiny-lib", "unwanted")
    answer = shop.extend(["extra>=1  # mine", "", "tiny-lib", "elsewhere ; sys_platform == 'win32'"])
    assert answer.code == 0, answer.err
    lock = shop.lock
    assert lock.versions == {"extra": "2.0", "needed": "3.0", "tiny-lib": "1.0"}
    assert lock.own == lockfile.Own(python=("extra", "needed"))
    assert lock.stack.extends is not None
    assert (lock.stack.extends.stack, lock.stack.extends.lock) == (TINY, parent.digest)
    assert lock.parent.digest == parent.digest != lock.digest
    assert (lock.parent.python, lock.parent.debian, lock.parent.build) == (parent.python, parent.debian, parent.build)
    assert [each.requirement for each in lock.stack.override] == ["unwanted ; sys_platform == 'never'"]
    assert audit.stale(lock) == []
    assert {path: path.read_bytes() for path in before} == before
    assert tomllib.loads((shop.folder / "stack.toml").read_text())["requires"] == ["tiny-lib==1.0", "extra==2.0"]
    assert "next: vetted certify mine" in answer.out and "extra 2.0" in answer.out


def test_a_release_far_behind_the_newest_is_refused_with_the_pin_that_is_in_the_way(shop: Shop) -> None:
    shop.offer("extra", "0.1")  # from before it required anything
    for number in range(2, 9):
        shop.offer("extra", f"{number}.0", "tiny-lib>=2")
    answer = shop.extend(["extra"])
    assert answer.code == 3
    assert "extra 0.1, and not 8.0: tiny-lib 1.0 is in the way" in answer.err
    assert "tiny-lib>=2" in answer.err and "--allow-old extra" in answer.err
    assert not shop.folder.exists()
    accepted = shop.extend(["extra"], "--allow-old", "Extra", "--json")
    assert accepted.json["own"] == {"extra": "0.1"}
    assert accepted.json["behind"][0]["in_the_way"] == ["tiny-lib 1.0"]
    assert shop.lock.stack.extends and shop.lock.stack.extends.allow_old == ["extra"]


def test_an_extra_of_a_package_of_the_parent_brings_what_it_needs(shop: Shop) -> None:
    shop.offer("tiny-lib", "1.0", "needed ; extra == 'more'")
    shop.offer("needed", "3.0")
    answer = shop.extend(["tiny-lib[more]"])
    assert answer.code == 0, answer.err
    assert shop.lock.own.python == ("needed",)
    assert shop.lock.stack.packages["tiny-lib"] == "tiny-lib[more]==1.0"
    assert shop.command(shop.small.root, "lock", MINE, "--json").json[MINE]["changed"] is False


def test_one_release_behind_is_said_and_accepted(shop: Shop) -> None:
    shop.offer("extra", "1.0")
    shop.offer("extra", "1.1", "tiny-lib>=2")
    answer = shop.extend(["extra"])
    assert (answer.code, shop.lock.versions["extra"]) == (0, "1.0")
    assert "not the newest: extra 1.0, and not 1.1: tiny-lib 1.0 is in the way" in answer.out


def test_the_pin_in_the_way_of_a_requirement_of_a_requirement_is_named(shop: Shop) -> None:
    shop.offer("middle", "1.0", "tiny-lib>=2")
    shop.offer("extra", "0.1")
    for number in range(2, 9):
        shop.offer("extra", f"{number}.0", "middle")
    assert "8.0: tiny-lib 1.0 is in the way" in shop.extend(["extra"]).err


def test_an_old_release_that_is_asked_for_is_no_antique(shop: Shop) -> None:
    for number in range(1, 9):
        shop.offer("extra", f"{number}.0")
    assert shop.extend(["extra<2"]).code == 0
    assert shop.lock.versions["extra"] == "1.0"


def test_another_own_requirement_in_the_way_is_told_in_uvs_words(shop: Shop) -> None:
    shop.offer("shared", "1.0")
    shop.offer("other", "1.0", "shared<1")
    shop.offer("shared", "0.5")
    shop.offer("extra", "0.1")
    for number in range(2, 9):
        shop.offer("extra", f"{number}.0", "shared>=1")
    answer = shop.extend(["extra", "other==1.0"])
    assert answer.code == 3
    assert "extra 0.1, and not 8.0" in answer.err and "shared" in answer.err and "in the way" in answer.err


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("tiny-lib>=2", "tiny-lib>=2: tiny has tiny-lib 1.0, which stays as it was certified"),
        ("tiny-lib", "tiny has all of it already"),
        ("unwanted", "unwanted is left out of tiny: nothing here needs it"),
        ("no-such-thing", "tiny has no place for no-such-thing"),
        ("extra>=2", "in the way: tiny-lib 1.0 of tiny"),
        ("--index-url https://somebody:planted-secret@host/simple", "--index-url names an index"),
        ("-e .", "-e is editable, and an image is not"),
        ("-r other.txt", "-r names another file"),
        ("extra @ https://host/extra-1.0-py3-none-any.whl", "extra is named by its address"),
        ("extra @ git+https://host/extra@main", "extra names main, a branch, a tag or a short hash"),
        ("extra @ git+https://host/extra@1234567", "extra names 1234567, a branch, a tag or a short hash"),
        ("extra @ git+https://host/extra", "extra names no commit"),
        ("git+https://host/extra", "the line names no commit"),
        (f"extra @ git+https://me:planted-secret@host/extra@{'a' * 40}", "a name or a password in its address"),
        ("git+https://host/extra@main", "names main, a branch"),
        ("extra=1", "'extra=1' is not a requirement"),
        ("./gone-1.0-py3-none-any.whl", "./gone-1.0-py3-none-any.whl does not exist"),
    ],
)
def test_what_cannot_be_is_refused_with_words_and_leaves_nothing(shop: Shop, line: str, reason: str) -> None:
    shop.offer("extra", "2.0", "tiny-lib>=2")
    answer = shop.extend([line])
    assert answer.code == 3
    assert reason in answer.err
    assert "planted-secret" not in answer.err and "next: " in answer.err
    assert not shop.folder.exists()


def test_files_of_the_parent_and_code_that_starts_by_itself_are_refused(shop: Shop) -> None:
    home = shop.small.project  # the parent's archives are here once something fetched them
    with home.holding(TINY) as scratch:
        archives.fetch(home, shop.small.lock.stack, shop.small.lock.python, scratch, lambda _: None)
    make_wheel(shop.small.wheelhouse, "thief", "1.0", {"tiny_lib.py": "greeting = 'mine'\n"})
    make_wheel(shop.small.wheelhouse, "starter", "1.0", {"starter.pth": "import os\n", "sitecustomize.py": ""})
    make_wheel(shop.small.wheelhouse, "hider", "1.0", {"tiny_lib/__init__.py": ""})
    for name, reason in {
        "thief": "brings another tiny_lib.py than tiny_lib-1.0-py3-none-any.whl",
        "starter": "brings starter.pth, which every Python would run at its start",
        "hider": "brings tiny_lib/__init__.py, which hides tiny_lib.py",
    }.items():
        answer = shop.extend([name])
        assert (answer.code, reason in answer.err) == (3, True), answer.err
    assert not shop.folder.exists()


def test_a_second_cuda_is_refused(shop: Shop) -> None:
    shop.offer("nvidia-nccl-cu12", "2.0")
    shop.offer("extra", "1.0", "nvidia-nccl-cu12")
    answer = shop.extend(["extra"])
    assert answer.code == 3
    assert "a cpu stack locks CUDA libraries: nvidia-nccl-cu12" in answer.err
    shop.offer("nvidia-ml-py", "2.0")  # it has none
    assert shop.extend(["nvidia-ml-py"]).code == 0


def test_it_is_extended_anew_in_place_and_no_other_stack_is_replaced(shop: Shop) -> None:
    shop.offer("extra", "1.0")
    shop.offer("more", "1.0")
    assert shop.extend(["extra"]).code == 0
    assert shop.extend(["more"]).code == 0
    assert shop.lock.own.python == ("more",)
    file = shop.small.root / "mine.txt"
    answer = shop.command(shop.small.root, "extend", TINY, str(file), "--name", TINY)
    assert answer.code == 3 and "there is a stack tiny already" in answer.err
    answer = shop.command(shop.small.root, "extend", MINE, str(file), "--name", "other")
    assert answer.code == 3 and "mine is an extension itself, of tiny" in answer.err


def test_a_wheel_and_a_source_archive_of_this_machine_lie_beside_the_stack(shop: Shop, tmp_path: Path) -> None:
    wheel, sha256 = make_wheel(tmp_path / "dist", "rewards", "1.4", {"rewards.py": ""})
    (shop.small.root / "rewards").mkdir()
    wheel.rename(shop.small.root / "rewards" / wheel.name)
    answer = shop.extend([f"rewards/{wheel.name}"])
    assert answer.code == 0, answer.err
    assert [path.name for path in (shop.folder / "sources").iterdir()] == [wheel.name]
    assert [entry.sha256 for entry in shop.lock.python if entry.name == "rewards"] == [sha256]
    assert shop.command(shop.small.root, "lock", MINE, "--check").code in (0, 1)


def test_without_a_name_or_packages_it_says_what_to_type(shop: Shop) -> None:
    assert shop.command(shop.small.root, "extend", TINY, "mine.txt").code == 2
    assert shop.command(shop.small.root, "extend", TINY, "--name", MINE).code == 2
    answer = shop.extend(None, "--debian", "git; rm")
    assert answer.code == 2 and "'git; rm' is not the name of a Debian package" in answer.err
    gone = shop.command(shop.small.root, "extend", TINY, "gone.txt", "--name", MINE)
    assert gone.code == 3 and "gone.txt does not exist" in gone.err


def test_what_an_own_package_requires_and_the_parent_leaves_out_is_said(shop: Shop) -> None:
    """Measured: liger-kernel was taken on a stack without Triton, and not a word said that no import of it works."""
    shop.offer("extra", "2.0", "unwanted>=1 ; sys_platform == 'linux'", "unwanted ; extra == 'more'")
    shop.offer("other", "1.0", "unwanted ; extra == 'more'", "Unwanted ; sys_platform == 'win32'")
    answer = shop.extend(["extra", "other"])
    assert answer.code == 0, answer.err
    assert "extra requires unwanted, which tiny leaves out: nothing here needs it" in answer.out
    assert "other requires" not in answer.out
    left_out = shop.extend(["other[more]"], "--json").json["left_out"]
    assert left_out == [{"name": "unwanted", "required_by": ["other"], "reason": "nothing here needs it"}]


@pytest.mark.parametrize("name", ["lockfiles/mine/sources/notes.txt", "images/mine/notes.txt", "lockfiles/mine"])
def test_a_folder_that_is_no_stack_stays(shop: Shop, name: str) -> None:
    """Such as lockfiles/controls and images/patches, or a folder of the user's own."""
    file = shop.small.root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("mine")
    shop.offer("extra", "2.0")
    answer = shop.extend(["extra"])
    assert (answer.code, file.read_text()) == (3, "mine")
    assert f"{Path(*Path(name).parts[:2])} is there and is no stack" in answer.err
    assert not (shop.folder / "stack.toml").exists()


def test_a_stack_is_not_written_through_a_link(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "behind").mkdir()
    shop.folder.symlink_to(tmp_path / "behind")
    shop.offer("extra", "2.0")
    assert shop.extend(["extra"]).code == 3
    assert list((tmp_path / "behind").iterdir()) == []


@pytest.mark.parametrize("own", [False, True])
def test_a_stack_that_cannot_be_written_completely_is_not_there(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: bool
) -> None:
    shop.offer("extra", "2.0")
    folder = shop.folder
    if own:  # then images/mine is of something else
        monkeypatch.setenv("VETTED_STACKS", str(tmp_path / "stacks"))
        folder = tmp_path / "stacks" / MINE
        folder.parent.mkdir()
        (shop.small.root / "images" / MINE).mkdir()
        (shop.small.root / "images" / MINE / "notes.txt").touch()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "lock.toml")

    with monkeypatch.context() as patch:
        patch.setattr(resolve, "put", full)
        assert shop.extend(["extra"]).code == 6
    assert not folder.exists()
    assert (shop.small.root / "images" / MINE / "notes.txt").exists() == own
    assert shop.extend(["extra"]).code == 0
    before = (folder / "stack.toml").read_text()
    monkeypatch.setattr(resolve, "put", full)
    assert shop.extend(["extra"]).code == 6
    assert (folder / "stack.toml").read_text() == before
