"""Where a build came from: git and the tools, as they are found; never a traceback, and no guess."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from builder.base import machine
from builder.image import origin
from builder.image.build import Built
from builder.image.origin import Origin, Tool
from builder.publish import provenance
from tests import parts
from tests.conftest import TINY, Small
from tests.registry.conftest import make_image

COMMIT, OTHER = "1" * 40, "2" * 40
TOOL = Tool(name="uv", uri="pkg:pypi/uv@1.0", digest="sha256:" + "3" * 64)


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No configuration of this machine's user."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def git(folder: Path, *argv: str) -> str:
    done = subprocess.run(
        [parts.git(), "-c", "user.name=Nobody", "-c", "user.email=nobody@example.org", *argv],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def committed(small: Small) -> str:
    """The commit of the small project."""
    git(small.root, "init", "--quiet")
    git(small.root, "add", "--all")
    git(small.root, "commit", "--quiet", "--message", "all")
    return git(small.root, "rev-parse", "HEAD")


def test_the_commit_is_found_and_a_certificate_is_no_change(small: Small, committed: str) -> None:
    small.issue()
    (small.root / "README.md").write_text("other")
    assert (source := origin.of(small.project, TINY)).commit == committed
    assert not source.dirty


@pytest.mark.parametrize("name", [f"lockfiles/{TINY}/stack.toml", "images/new/Dockerfile", "runtime/stray.py"])
def test_a_change_of_what_an_image_is_made_of_is_dirty(small: Small, committed: str, name: str) -> None:
    (small.root / name).parent.mkdir(exist_ok=True)
    with (small.root / name).open("a") as file:
        file.write("\n")
    assert (source := origin.of(small.project, TINY)).dirty and source.commit == committed


def test_without_a_repository_or_a_commit_none_is_named(small: Small) -> None:
    assert origin.of(small.project, TINY).commit is None
    git(small.root, "init", "--quiet")
    assert origin.of(small.project, TINY).commit is None


def test_without_git_none_is_named(
    small: Small, committed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert committed
    monkeypatch.setenv("PATH", str(tmp_path))
    source = origin.of(small.project, TINY)
    assert source.commit is None and "mmdebstrap" not in [tool.name for tool in source.tools]


def test_a_broken_repository_names_none(small: Small, committed: str) -> None:
    assert committed
    (small.root / ".git" / "HEAD").write_text("\x1b[2J")
    assert origin.of(small.project, TINY) == Origin(tools=origin.of(small.project, TINY).tools)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_clone_of_another_user_has_its_commit(small: Small, committed: str) -> None:
    for path in (small.root, *small.root.rglob("*")):
        os.chown(path, 4242, 4242, follow_symlinks=False)
    assert origin.of(small.project, TINY).commit == committed


def test_the_tools_are_named_by_their_own_digests(small: Small) -> None:
    tools = {tool.name: tool for tool in origin.of(small.project, TINY).tools}
    uv = Path(machine.uv_binary())
    assert tools["uv"].digest == f"sha256:{hashlib.sha256(uv.read_bytes()).hexdigest()}"
    assert f"uv {(tools['uv'].uri or '').rpartition('@')[2]}" in subprocess.check_output([uv, "--version"], text=True)
    requirements = Path(origin.__file__).parents[2] / "requirements.txt"
    assert tools["requirements.txt"].digest == f"sha256:{hashlib.sha256(requirements.read_bytes()).hexdigest()}"
    if shutil.which("mmdebstrap"):
        assert (tools["mmdebstrap"].uri or "").startswith("pkg:generic/mmdebstrap@")


def built(small: Small, came: Origin | None) -> Built:
    image = make_image(small)
    return Built(image.image, image.reference, image.buildkit, image.inputs, came)


def test_the_provenance_names_source_and_tools(small: Small) -> None:
    statement = provenance.make(
        small.project, small.lock, built(small, Origin(commit=COMMIT, dirty=True, tools=(TOOL,)))
    )
    first = statement["buildDefinition"]["resolvedDependencies"][0]
    assert (first["name"], first["digest"]) == ("source", {"gitCommit": COMMIT})
    assert "changes on top" in first["annotations"]["uncommitted"]
    assert statement["runDetails"]["builder"]["builderDependencies"] == [
        {"name": "uv", "uri": TOOL.uri, "digest": {"sha256": "3" * 64}}
    ]


@pytest.mark.parametrize(
    ("before", "now", "stays"),
    [
        (Origin(commit=COMMIT, tools=(TOOL,)), Origin(commit=COMMIT, tools=(TOOL,)), True),
        (Origin(commit=COMMIT, tools=(TOOL,)), Origin(commit=OTHER, tools=(TOOL,)), True),
        (Origin(commit=COMMIT, tools=(TOOL,)), Origin(commit=OTHER, dirty=True, tools=(TOOL,)), True),
        (Origin(commit=COMMIT, tools=(TOOL,)), None, True),
        (Origin(commit=COMMIT, dirty=True, tools=(TOOL,)), Origin(commit=OTHER, tools=(TOOL,)), False),
        (Origin(commit=COMMIT), Origin(commit=OTHER, tools=(TOOL,)), False),
        (None, Origin(commit=COMMIT, tools=(TOOL,)), False),
        (None, None, True),
    ],
)
def test_which_provenance_stays_when_another_commit_publishes(
    small: Small, before: Origin | None, now: Origin | None, stays: bool
) -> None:
    there, here = (provenance.make(small.project, small.lock, built(small, came)) for came in (before, now))
    assert provenance.stands(there, here) is stays


def test_the_provenance_of_other_inputs_never_stays(small: Small) -> None:
    came = Origin(commit=COMMIT, tools=(TOOL,))
    there = provenance.make(small.project, small.lock, built(small, came))
    small.patch.write_text(small.patch.read_text().replace("Greets", "Salutes"))
    assert not provenance.stands(there, provenance.make(small.project, small.lock, built(small, came)))
    assert not provenance.stands({"runDetails": []}, there)
