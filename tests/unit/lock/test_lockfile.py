"""The lock: its identity, and what it says when it was tampered with."""

from __future__ import annotations

import re

import pytest

from builder.base import errors
from builder.base.project import Project
from builder.intent import stack
from builder.intent.platform import ARM64
from builder.lock import lockfile
from builder.lock.lockfile import Entry
from tests.conftest import PYTHON, TINY, Small

EDITS = {
    "a version of a distribution": ("requirements.txt", "==1.0 ", "==1.1 "),
    "a hash of a build tool": ("build.txt", "b" * 64, "c" * 64),
    "a version of a build tool": ("build.txt", "==80.0", "==80.1"),
    "a hash of a Debian package": ("debian.txt", "d" * 64, "e" * 64),
    "a version of a Debian package": ("debian.txt", "deb12u3", "deb12u4"),
    "the epoch": ("lock.toml", "1700000000", "1700000001"),
    "the device": ("stack.toml", '"cpu"', '"cuda"'),
    "the Debian suite": ("stack.toml", '"bookworm"', '"trixie"'),
    "the Python": ("stack.toml", f'python = "{PYTHON}"', 'python = "3.99"'),
}


@pytest.mark.parametrize("what", EDITS)
def test_the_digest_changes_with(small: Small, what: str) -> None:
    before = small.lock.digest
    file, old, new = EDITS[what]
    small.edit(file, old, new)
    assert small.lock.digest != before


def two_platforms(small: Small) -> None:
    """The small stack, locked for arm64 as well, where one Debian package was built anew."""
    small.edit("stack.toml", 'debian = "bookworm"', 'debian = "bookworm"\nplatforms = ["amd64", "arm64"]')
    for file in ("requirements.txt", "debian.txt"):
        small.file(ARM64.file(file)).write_text(small.file(file).read_text())
    small.edit("debian.arm64.txt", "deb12u3 ", "deb12u3+b1 ")


def test_a_lock_for_another_platform_has_files_and_a_digest_of_its_own(small: Small) -> None:
    before = small.lock
    two_platforms(small)
    amd64, arm64 = lockfile.load_all(small.project, TINY)
    assert (amd64.digest, amd64.intent) == (before.digest, before.intent)
    assert arm64.platform is ARM64 and arm64.debian[0].version.endswith("+b1")
    assert arm64.build == amd64.build
    small.edit("debian.arm64.txt", "deb12u3+b1 ", "deb12u3 ")
    arm64 = lockfile.load(small.project, TINY, ARM64)
    assert (arm64.python, arm64.debian) == (amd64.python, amd64.debian)
    assert arm64.digest != amd64.digest
    assert (amd64.image, arm64.image) == (TINY, f"{TINY}.arm64")


def test_a_platform_that_a_stack_does_not_name_is_refused_and_one_that_is_not_locked(small: Small) -> None:
    with pytest.raises(errors.BadInputError, match="tiny is not for arm64"):
        lockfile.load(small.project, TINY, ARM64)
    two_platforms(small)
    small.file("requirements.arm64.txt").unlink()
    with pytest.raises(errors.BadInputError, match=r"requirements\.arm64\.txt does not exist") as caught:
        lockfile.load_all(small.project, TINY)
    assert caught.value.next_step == f"vetted lock {TINY}"


def test_the_digest_changes_with_one_digit_of_a_distributions_hash(small: Small) -> None:
    before = small.lock
    sha256 = before.python[0].sha256
    small.edit("requirements.txt", sha256, f"{(int(sha256[0], 16) + 1) % 16:x}{sha256[1:]}")
    assert small.lock.digest != before.digest


def test_the_digest_changes_with_one_byte_of_a_patch(small: Small) -> None:
    before = small.lock.digest
    small.patch.write_text(small.patch.read_text().replace("'somebody'", "'Somebody'"))
    assert small.lock.digest != before


def test_the_digest_changes_when_a_patch_goes(small: Small) -> None:
    before = small.lock.digest
    text = small.file("stack.toml").read_text()
    small.file("stack.toml").write_text(text.partition("[[patch]]")[0])
    assert small.lock.digest != before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("stack.toml", 'title = "Tiny"', 'title = "Another"'),
        ("stack.toml", "nothing here needs it", "it is too large"),
        ("stack.toml", "it greets nobody", "it is impolite"),
        ("stack.toml", 'title = "Tiny"', '# A comment.\ntitle = "Tiny"'),
        ("requirements.txt", "# Written", "\n# A comment.\n# Written"),
        ("lock.toml", "# SOURCE_DATE_EPOCH of the image", ""),
    ],
)
def test_the_digest_stays_with_words_for_people(small: Small, file: str, old: str, new: str) -> None:
    before = small.lock.digest
    small.edit(file, old, new)
    assert small.lock.digest == before


@pytest.mark.parametrize("file", ["requirements.txt", "build.txt", "debian.txt"])
@pytest.mark.parametrize(
    "line",
    [
        "<<<<<<< ours",
        "tiny-lib==1.0",
        f"tiny-lib==1.0 --hash=sha256:{'a' * 63}",
        f"tiny-lib==1.0 --hash=sha256:{'A' * 64}",
        f"tiny-lib==1.0 --hash=md5:{'a' * 64}",
        f"tiny-lib>=1.0 --hash=sha256:{'a' * 64}",
        f"tiny-lib==1.0 --hash=sha256:{'a' * 64} --hash=sha256:{'b' * 64}",
        f"--index-url=http://x tiny-lib==1.0 --hash=sha256:{'a' * 64}",
        f"bash=5 1 sha256:{'a' * 64}",
    ],
)
def test_a_malformed_line_is_named_by_file_and_number(small: Small, file: str, line: str) -> None:
    path = small.file(file)
    path.write_text(path.read_text() + f"\n{line}\n")
    with pytest.raises(errors.BadInputError) as caught:
        lockfile.load(small.project, TINY)
    assert f"lockfiles/{TINY}/{file}, line 4: not a locked entry: '{line[:40]}" in caught.value.what
    assert f"git checkout lockfiles/{TINY}/{file}" in caught.value.next_step
    assert f"vetted lock {TINY}" in caught.value.next_step


@pytest.mark.parametrize("file", ["requirements.txt", "build.txt", "debian.txt", "lock.toml"])
def test_a_missing_file_is_named_with_the_command_that_makes_it(small: Small, file: str) -> None:
    small.file(file).unlink()
    with pytest.raises(errors.BadInputError, match=f"lockfiles/{TINY}/{file} does not exist") as caught:
        lockfile.load(small.project, TINY)
    assert caught.value.next_step == f"vetted lock {TINY}"


@pytest.mark.parametrize("file", ["requirements.txt", "debian.txt", "lock.toml"])
def test_a_file_that_is_not_text_is_named(small: Small, file: str) -> None:
    small.file(file).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.BadInputError, match=f"lockfiles/{TINY}/{file}: not UTF-8 text"):
        lockfile.load(small.project, TINY)


@pytest.mark.parametrize(
    "content", ["epoch = 1\n", 'intent = "sha256:0"\n', 'epoch = "1"\nintent = "x"\n', "epoch = 1\nintent = 2\n", "<<<"]
)
def test_a_broken_lock_toml_is_named(small: Small, content: str) -> None:
    small.file("lock.toml").write_text(content)
    with pytest.raises(errors.BadInputError, match=f"lockfiles/{TINY}/lock.toml: ") as caught:
        lockfile.load(small.project, TINY)
    assert caught.value.next_step == f"vetted lock {TINY}"


def intent(small: Small) -> str:
    return lockfile.intent(stack.load(small.project, TINY))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tiny-lib==1.0", "tiny-lib==1.1"),
        ('"tiny-lib==1.0"', '"tiny-lib==1.0", "other"'),
        ('"cpu"', '"cuda"'),
        ('"bookworm"', '"trixie"'),
        ("unwanted ;", "unneeded ;"),
    ],
)
def test_the_intent_changes_with_what_decides_the_lock(small: Small, old: str, new: str) -> None:
    before = intent(small)
    small.edit("stack.toml", old, new)
    assert intent(small) != before


@pytest.mark.parametrize(
    ("old", "new"), [('title = "Tiny"', 'title = "Another"'), ("nothing here needs it", "it is too large")]
)
def test_the_intent_stays_with_words_for_people(small: Small, old: str, new: str) -> None:
    before = intent(small)
    small.edit("stack.toml", old, new)
    assert intent(small) == before


def test_the_order_of_requirements_is_no_intent(small: Small) -> None:
    small.edit("stack.toml", '["tiny-lib==1.0"]', '["tiny-lib==1.0", "other==2"]')
    before = intent(small)
    small.edit("stack.toml", '["tiny-lib==1.0", "other==2"]', '["other==2", "tiny-lib==1.0"]')
    assert intent(small) == before


def test_what_is_written_is_read_back() -> None:
    python = (Entry("torch", "2.13.0+cpu", "0" * 64), Entry("odd-name", "1!2.0.post1", "f" * 64))
    debian = (Entry("bsdutils", "1:2.38.1-5+deb12u3", "1" * 64), Entry("libstdc++6", "12.2.0-14~x", "2" * 64))
    assert lockfile.parse(lockfile.header("x") + lockfile.format_python(python), lockfile.PIN, "x", "x") == python
    assert lockfile.parse(lockfile.header("x") + lockfile.format_debian(debian), lockfile.PACKAGE, "x", "x") == debian


def test_the_committed_locks_name_no_index_and_no_host(real: Project) -> None:
    for name in stack.names(real):
        lock = lockfile.load(real, name)
        assert lock.python and lock.debian
        for file in ("requirements.txt", "build.txt", "debian.txt", "lock.toml"):
            text = (real.stack_dir(name) / file).read_text(encoding="utf-8")
            assert not re.search(r"://|--index|--find-links|--extra", text), f"{name}/{file}"
