"""Patches: they apply exactly or not at all, and never write to what is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from builder.image import patches

TEN = "".join(f"line {number}\n" for number in range(1, 11))
FIVE = """\
Why this is needed.

--- a/package/module.py
+++ b/package/module.py
@@ -4,3 +4,4 @@
 line 4
-line 5
+LINE FIVE
+and more
 line 6
"""
PATCHED = TEN.replace("line 5\n", "LINE FIVE\nand more\n")


class Site:
    """A site-packages folder with one module, and a place for patches and for what they make."""

    def __init__(self, root: Path) -> None:
        self.packages, self.output, self.root = root / "site", root / "output", root
        self.module = self.packages / "package" / "module.py"
        self.module.parent.mkdir(parents=True)
        self.module.write_text(TEN)
        self.patched = self.output / "package" / "module.py"

    def apply(self, *texts: str) -> list[Path]:
        files = []
        for number, text in enumerate(texts, start=1):
            files.append(self.root / f"{number:04}-test.patch")
            files[-1].write_bytes(text.encode())
        return patches.apply(self.packages, self.output, files)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_patch_changes_the_lines_it_names_and_no_other(site: Site) -> None:
    assert site.apply(FIVE) == [Path("package/module.py")]
    assert site.patched.read_text() == PATCHED
    assert [path for path in site.output.rglob("*") if path.is_file()] == [site.patched]


def test_the_installed_file_is_not_written_to(site: Site) -> None:
    before = site.module.stat()
    site.apply(FIVE)
    assert site.module.read_text() == TEN
    assert site.module.stat().st_mtime_ns == before.st_mtime_ns


def test_a_second_patch_sees_what_the_first_one_made(site: Site) -> None:
    second = FIVE.replace("-line 5\n+LINE FIVE\n+and more\n", " LINE FIVE\n-and more\n").replace("4,3 +4,4", "4,4 +4,3")
    assert site.apply(FIVE, second) == [Path("package/module.py")]
    assert site.patched.read_text() == TEN.replace("line 5\n", "LINE FIVE\n")


OTHER = "--- a/other.py\n+++ b/other.py\n@@ -2,0 +3,1 @@\n+c\n"


def test_several_hunks_of_one_file_all_apply(site: Site) -> None:
    assert site.apply(FIVE + "@@ -9,2 +10,1 @@\n-line 9\n line 10\n") == [Path("package/module.py")]
    assert site.patched.read_text() == PATCHED.replace("line 9\n", "")


def test_several_files_of_one_patch_all_apply(site: Site) -> None:
    (site.packages / "other.py").write_text("a\nb\n")
    first = FIVE.replace("--- a/", "diff --git a/package/module.py b/package/module.py\n--- a/")
    second = "diff --git a/other.py b/other.py\n" + OTHER
    assert site.apply(first + second) == [Path("package/module.py"), Path("other.py")]
    assert site.patched.read_text() == PATCHED
    assert (site.output / "other.py").read_text() == "a\nb\nc\n"


def test_several_files_of_a_plain_patch_are_not_mixed_up(site: Site) -> None:
    (site.packages / "other.py").write_text("a\nb\n")
    assert site.apply(FIVE + OTHER) == [Path("package/module.py"), Path("other.py")]
    assert site.patched.read_text() == PATCHED


@pytest.mark.parametrize("ending", ["", "\n", "\n\n", "\n\n\n"])
def test_the_end_of_the_file_stays_as_it_was(site: Site, ending: str) -> None:
    site.module.write_text(TEN.rstrip("\n") + ending)
    site.apply(FIVE)
    assert site.patched.read_text() == PATCHED.rstrip("\n") + ending


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("line 0\n" + TEN, id="one line further down"),
        pytest.param(TEN.replace("line 1\n", ""), id="one line further up"),
        pytest.param(TEN.replace("line 4", "line four"), id="changed before"),
        pytest.param(TEN.replace("line 6", "line six"), id="changed after"),
        pytest.param(TEN.replace("line 5", "line  5"), id="changed where it is replaced"),
        pytest.param(TEN.replace("line 6", "line 6 "), id="white space at the end"),
        pytest.param("line 1\n", id="too short"),
        pytest.param("", id="empty"),
        pytest.param(PATCHED, id="patched already"),
    ],
)
def test_a_file_that_is_not_exactly_the_one_is_refused(site: Site, content: str) -> None:
    site.module.write_text(content)
    with pytest.raises(patches.PatchError, match=r"0001-test\.patch: does not apply exactly to package/module\.py"):
        site.apply(FIVE)
    assert not site.output.exists()


def test_a_file_that_is_not_installed_is_named(site: Site) -> None:
    site.module.unlink()
    with pytest.raises(patches.PatchError, match=r"0001-test\.patch: package/module\.py is not in this stack"):
        site.apply(FIVE)


@pytest.mark.parametrize("path", ["../module.py", "package/../../module.py", "/etc/hostname", "//etc/hostname"])
def test_a_path_that_leaves_site_packages_is_refused(site: Site, path: str) -> None:
    (site.root / "module.py").write_text(TEN)
    text = FIVE.replace("a/package/module.py", path).replace("b/package/module.py", path)
    with pytest.raises(patches.PatchError, match="leaves site-packages"):
        site.apply(text)
    assert (site.root / "module.py").read_text() == TEN


@pytest.mark.parametrize("text", ["", "\n", "Only a description.\n", FIVE.partition("@@")[0]])
def test_a_patch_without_changes_is_refused(site: Site, text: str) -> None:
    with pytest.raises(patches.PatchError, match=r"0001-test\.patch: holds (no unified diff|a diff without)"):
        site.apply(text)


LAST = "--- a/package/module.py\n+++ b/package/module.py\n@@ -9,2 +9,{} @@\n line 9\n{}"


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize(
    ("hunk", "patched"),
    [
        (LAST.format(2, "-line 10\n+LINE TEN\n"), TEN.replace("line 10", "LINE TEN")),
        (LAST.format(3, " line 10\n+line 11\n"), TEN + "line 11\n"),
        (LAST.format(1, "-line 10\n"), TEN.replace("line 10\n", "")),
    ],
    ids=["replaced", "followed", "removed"],
)
def test_the_end_of_the_file_stays_as_it_was_when_its_last_line_is_patched(
    site: Site, hunk: str, patched: str, ending: str
) -> None:
    site.module.write_text(TEN.rstrip("\n") + ending)
    site.apply(hunk)
    assert site.patched.read_text() == patched.rstrip("\n") + ending


def test_a_patch_made_of_a_file_without_a_last_newline_applies_to_it(site: Site) -> None:
    site.module.write_text(TEN.rstrip("\n"))
    no_newline = "\\ No newline at end of file\n"
    site.apply(LAST.format(2, f"-line 10\n{no_newline}+LINE TEN\n{no_newline}"))
    assert site.patched.read_text() == TEN.replace("line 10\n", "LINE TEN")


@pytest.mark.parametrize("line", [0, 1, 5, 10])
def test_lines_without_context_are_inserted_after_the_line_that_is_named(site: Site, line: int) -> None:
    site.apply(f"--- a/package/module.py\n+++ b/package/module.py\n@@ -{line},0 +{line + 1},1 @@\n+new\n")
    lines = TEN.splitlines()
    assert site.patched.read_text().splitlines() == [*lines[:line], "new", *lines[line:]]


@pytest.mark.parametrize(
    "hunks",
    [
        pytest.param("@@ -11,0 +12,1 @@\n+new\n", id="after the end"),
        pytest.param("@@ -5,1 +5,1 @@\n-line 5\n+x\n@@ -3,1 +3,1 @@\n-line 3\n+y\n", id="out of order"),
        pytest.param("@@ -5,2 +5,2 @@\n-line 5\n+x\n", id="a line short"),
        pytest.param("@@ -5,1 +5,1 @@\n-line 5\n+x\n+y\n", id="a line too many"),
    ],
)
def test_hunks_that_are_not_what_they_say_are_refused(site: Site, hunks: str) -> None:
    with pytest.raises(patches.PatchError, match=r"^0001-test\.patch: "):
        site.apply("--- a/package/module.py\n+++ b/package/module.py\n" + hunks)
    assert not site.output.exists()


def test_a_patch_that_removes_a_file_is_refused(site: Site) -> None:
    site.module.write_text("line 1\n")
    with pytest.raises(patches.PatchError):
        site.apply("--- a/package/module.py\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-line 1\n")


def test_a_patch_that_makes_a_new_file_is_refused(site: Site) -> None:
    with pytest.raises(patches.PatchError):
        site.apply("--- /dev/null\n+++ b/package/new.py\n@@ -0,0 +1,1 @@\n+line 1\n")


def script(site: Site, text: str) -> subprocess.CompletedProcess[str]:
    """The module as the image's build runs it."""
    patch = site.root / "0001-test.patch"
    patch.write_text(text)
    argv = [sys.executable, patches.__file__, str(site.packages), str(site.output), str(patch)]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(argv, cwd=site.root, env=env, capture_output=True, text=True, check=False)


def test_as_a_script_it_writes_the_patched_files(site: Site) -> None:
    done = script(site, FIVE)
    assert (done.returncode, done.stdout) == (0, "patched package/module.py\n")
    assert site.patched.read_text() == PATCHED


def test_as_a_script_it_fails_with_one_line(site: Site) -> None:
    site.module.write_text(PATCHED)
    done = script(site, FIVE)
    assert done.returncode == 1
    assert done.stderr.startswith("0001-test.patch: does not apply exactly")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("separator", ["\x0c", "\x1c", "\x85", "\u2028"])
def test_a_character_that_only_python_takes_for_a_lines_end_stays(site: Site, separator: str) -> None:
    content = TEN.replace("line 9", f"'line{separator}9'")
    site.module.write_text(content, encoding="utf-8")
    site.apply(FIVE)
    assert site.patched.read_text(encoding="utf-8") == content.replace("line 5\n", "LINE FIVE\nand more\n")


def test_the_line_ends_of_untouched_lines_stay(site: Site) -> None:
    site.module.write_bytes(TEN.replace("line 9\n", "line 9\r\n").encode())
    site.apply(FIVE)
    assert b"line 8\nline 9\r\nline 10\n" in site.patched.read_bytes()


@pytest.mark.parametrize("broken", ["patch", "module"])
def test_what_is_not_utf8_is_refused(site: Site, broken: str) -> None:
    patch = site.root / "0001-test.patch"
    patch.write_text(FIVE)
    path = patch if broken == "patch" else site.module
    path.write_bytes(b"\xff\n" + path.read_bytes())
    with pytest.raises(patches.PatchError):
        patches.apply(site.packages, site.output, [patch])
