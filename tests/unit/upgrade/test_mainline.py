"""The main branch of a package: a local repository of a tiny one, with one commit that breaks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from builder.base import errors, process
from builder.upgrade import mainline
from tests.conftest import TINY, make_wheel
from tests.unit.lock.test_commit import Repository
from tests.unit.upgrade.test_watch import Watch
from tests.unit.upgrade.test_watch import watching as watching

PYPROJECT = """\
[project]
name = "tiny-lib"
version = "VERSION"
[build-system]
requires = ["tiny-build"]
build-backend = "BACKEND"
"""
# A build backend from the wheelhouse.
BACKEND = """\
import base64, hashlib, tomllib, zipfile
from pathlib import Path
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version = tomllib.loads(Path("pyproject.toml").read_text())["project"]["version"]
    stem = f"tiny_lib-{version}"
    files = {"tiny_lib.py": Path("tiny_lib.py").read_text()}
    files[f"{stem}.dist-info/METADATA"] = f"Metadata-Version: 2.1\\nName: tiny-lib\\nVersion: {version}\\n"
    files[f"{stem}.dist-info/WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    def row(path, text):
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        return f"{path},sha256={digest},{len(text.encode())}"
    rows = [row(*item) for item in files.items()] + [f"{stem}.dist-info/RECORD,,", ""]
    files[f"{stem}.dist-info/RECORD"] = "\\n".join(rows)
    with zipfile.ZipFile(Path(wheel_directory) / f"{stem}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return f"{stem}-py3-none-any.whl"
"""
SUITE = (
    "import tiny_lib; bad = probe == 'beta' and getattr(tiny_lib, 'broken', False); "
    "end(probe, **({'outcome': 'failed', 'reason': 'ValueError: no'} if bad else {}))"
)


class Upstream(Repository):
    """The repository of tiny-lib: the release that the stack pins has a tag."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.number = 0
        self.write("1.0")
        self.git("tag", "v1.0")

    def write(self, version: str, *, broken: bool = False, loads: bool = True) -> str:
        """A commit with another number in it; `loads`: not one that cannot be built."""
        self.number += 1
        library = f"first = 1\ngreeting = 'nobody'\nlast = 3\nbroken = {broken}\nnumber = {self.number}\n"
        return self.commit(
            pyproject_dot_toml=PYPROJECT.replace("VERSION", version).replace(
                "BACKEND", "tiny_build" if loads else "gone"
            ),
            tiny_lib_dot_py=library,
        )


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path / "upstream")


def tried(watching: Watch, upstream: Upstream, code: int, suite: str = SUITE) -> Any:
    for wheel in watching.small.wheelhouse.glob("*-2.0-*.whl"):
        wheel.unlink()  # nothing else is new
    make_wheel(watching.small.wheelhouse, "tiny-build", "1", {"tiny_build.py": BACKEND})
    watching.suite(suite)
    watching.small.issue()
    watching.commit()
    answer = watching.watch("--main", f"tiny-lib={upstream.folder}", code=code)
    assert watching.small.lock.versions["tiny-lib"] == "1.0"
    assert watching.git("status", "--porcelain", "--untracked-files=no", "--", f"lockfiles/{TINY}/stack.toml") == ""
    (main,) = answer["main"]
    return main


@pytest.mark.engine
def test_the_commit_that_broke_it_is_named(watching: Watch, upstream: Upstream) -> None:
    for _ in range(4):
        upstream.write("1.1.dev0")
    bad = upstream.write("1.1.dev0", broken=True)
    upstream.git("commit", "--quiet", "--amend", "-m", "Make it faster")
    bad = upstream.git("rev-parse", "HEAD")
    for _ in range(3):
        head = upstream.write("1.1.dev0", broken=True)
    main = tried(watching, upstream, code=1)
    assert (main["commit"], main["version"], main["outcome"], main["red"]) == (head, "1.1.dev0", "red", ["beta"])
    assert main["good"] == upstream.git("rev-parse", "v1.0")
    assert main["suspects"] == [bad]
    assert main["sentence"] == f"tiny-lib at {head[:12]} (main): does not pass beta since {bad[:12]} Make it faster"
    assert main["commits_tried"] <= 6  # of nine


@pytest.mark.engine
def test_the_search_begins_at_the_last_commit_that_passed(watching: Watch, upstream: Upstream) -> None:
    good = upstream.write("1.1.dev0")
    main = tried(watching, upstream, code=0)
    assert (main["outcome"], main["sentence"]) == ("green", f"tiny-lib at {good[:12]} (main): passes the suite")
    bad = upstream.write("1.1.dev0", broken=True)
    main = watching.watch("--main", f"tiny-lib={upstream.folder}", code=1)["main"][0]
    assert (main["good"], main["suspects"]) == (good, [bad])


@pytest.mark.engine
def test_commits_that_cannot_be_tried_are_suspects_too(watching: Watch, upstream: Upstream) -> None:
    upstream.write("1.1.dev0")
    strange = upstream.write("1.1.dev0", loads=False)
    bad = upstream.write("1.1.dev0", broken=True)
    main = tried(watching, upstream, code=1)
    assert main["suspects"] == [strange, bad]
    assert "since one of" in main["sentence"]


@pytest.mark.engine
def test_a_fault_that_the_release_has_too_is_not_blamed_on_a_commit(watching: Watch, upstream: Upstream) -> None:
    upstream.write("1.1.dev0", broken=True)
    upstream.write("1.1.dev0", broken=True)
    main = tried(watching, upstream, code=1, suite=SUITE.replace("getattr(tiny_lib, 'broken', False)", "True"))
    assert (main["outcome"], main["suspects"]) == ("red", [])
    assert main["no_culprit"] == "beta is red with tiny-lib 1.0 already"


@pytest.mark.engine
def test_without_a_tag_there_is_no_beginning(watching: Watch, upstream: Upstream) -> None:
    upstream.git("tag", "--delete", "v1.0")
    upstream.write("1.1.dev0", broken=True)
    assert tried(watching, upstream, code=1)["no_culprit"] == "its repository has no tag v1.0"


@pytest.mark.engine
def test_what_cannot_be_tried_is_said(watching: Watch, upstream: Upstream) -> None:
    upstream.write("1.1.dev0", loads=False)
    main = tried(watching, upstream, code=0)
    assert main["outcome"] == "unclear" and "could not be tried" in main["sentence"]


@pytest.mark.engine
def test_a_main_branch_with_the_version_of_a_release_is_not_mistaken_for_it(
    watching: Watch, upstream: Upstream
) -> None:
    upstream.write("1.0")
    main = tried(watching, upstream, code=0)
    assert main["outcome"] == "unclear" and "is a release of an index, too" in main["explanation"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("trl", "is not PACKAGE=REPOSITORY"), ("=x", "is not PACKAGE=REPOSITORY"),
        ("trl=https://me:secret@host.test/trl", "contains a password"),
        ("trl=https://secret@host.test/trl", "contains a user name"),
    ],
)  # fmt: skip
def test_what_is_no_repository_is_refused(text: str, words: str) -> None:
    with pytest.raises(errors.BadInputError, match=words) as caught:
        mainline.parse(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("user", ["org", "me:planted"])
def test_what_is_before_the_at_is_to_be_removed(user: str) -> None:
    """Forges give addresses with a name in them, https://org@dev.azure.com/… for one."""
    with pytest.raises(errors.BadInputError) as caught:
        mainline.parse(f"trl=https://{user}@host.test/trl")
    assert caught.value.next_step.startswith("remove the user from the address")
    assert "git's credential helper" in caught.value.next_step


@pytest.mark.parametrize("broken_off", [False, True])
def test_a_failure_of_the_network_costs_no_clone(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, broken_off: bool
) -> None:
    kept, scratch = tmp_path / "tiny-lib.git", tmp_path / "scratch"
    scratch.mkdir()
    source = mainline.parse(f"tiny-lib={upstream.folder}")
    mainline._fetch(kept, source, scratch)

    def fails(*_argv: object, **_more: object) -> process.Result:
        (kept / "FETCH_HEAD").touch()
        (kept / "objects" / "pack" / "tmp_pack_a").touch()
        return process.Result(("git",), 128, "", "fatal: early EOF")

    with monkeypatch.context() as patched:
        if broken_off:
            patched.setattr(process, "run", fails)
        else:
            upstream.folder.rename(tmp_path / "away")
        with pytest.raises(errors.NetworkError):
            mainline._fetch(kept, source, scratch)
    if not broken_off:
        (tmp_path / "away").rename(upstream.folder)
    newest = upstream.write("1.1.dev0")
    monkeypatch.setattr(mainline, "remove", removed := Mock())
    mainline._fetch(kept, source, scratch)
    assert not removed.called
    assert mainline._git(kept, "rev-parse", mainline.HEAD) == newest


def test_a_folder_is_named_by_its_address(tmp_path: Path) -> None:
    source = mainline.parse(f"Tiny_Lib={tmp_path}")
    assert (source.package, source.address) == ("tiny-lib", tmp_path.as_uri())
    assert mainline.parse("trl=git@host.test:me/trl").address == "git@host.test:me/trl"
