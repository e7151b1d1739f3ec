"""Stacks of one's own: in a folder beside the project, which changes nothing in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builder.base.project import Project
from builder.image import origin
from builder.intent import stack
from builder.lock import lockfile
from builder.pages import generate
from tests.commands import vetted
from tests.conftest import STACK_TOML, TINY, Small
from tests.unit.conftest import Command

MINE = "mine"


@pytest.fixture
def mine(wheels: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one stack, outside of the project, whose documents are up to date."""
    generate.refresh(wheels.project, wheels.scratch())
    folder = tmp_path / "own"
    (folder / MINE).mkdir(parents=True)
    for name in ("lock.toml", "requirements.txt", "build.txt", "debian.txt"):
        shutil.copy(wheels.file(name), folder / MINE)
    (folder / MINE / "stack.toml").write_text(STACK_TOML.replace('"Tiny"', '"Mine"'))
    monkeypatch.setenv("VETTED_STACKS", str(folder))
    return folder


def snapshot(project: Project) -> dict[Path, bytes]:
    ignored = {project.root / ".vetted"}
    files = (path for path in project.root.rglob("*") if path.is_file() and not ignored & set(path.parents))
    return {path: path.read_bytes() for path in files}


def test_it_is_listed_locked_and_rendered_beside_itself(command: Command, wheels: Small, mine: Path) -> None:
    before = snapshot(wheels.project)
    assert [row["stack"] for row in command(wheels.root, "list", "--json").json] == [MINE, TINY]
    (mine / MINE / "requirements.txt").write_text("")
    assert command(wheels.root, "lock", MINE, "--json").json[MINE]["changed"]
    assert lockfile.load(wheels.project, MINE).versions == {"tiny-lib": "1.0"}
    answer = command(wheels.root, "render")
    assert answer.out == f"rendered {mine / MINE / 'Dockerfile'}\n"
    assert "vetted build mine" in (mine / MINE / "Dockerfile").read_text()
    check = command(wheels.root, "render", "--check")
    assert (check.code, check.out) == (0, "everything rendered is up to date\n")
    assert snapshot(wheels.project) == before


def test_a_folder_that_cannot_be_a_name_is_told_another(command: Command, wheels: Small, mine: Path) -> None:
    (mine / MINE).rename(mine / "My stack")
    answer = command(wheels.root, "list")
    assert answer.code == 3
    assert answer.err.splitlines()[-1] == f"next: mv '{mine}/My stack' {mine}/my-stack"


def test_documents_and_the_doctor_do_not_speak_of_it(wheels: Small, mine: Path) -> None:
    (wheels.root / "doctor" / "know").mkdir(parents=True, exist_ok=True)
    (wheels.root / "advisories").mkdir(exist_ok=True)
    texts = generate.generated(wheels.project)
    assert not any(f"`{MINE}`" in text or f'"{MINE}"' in text for text in texts.values())
    assert mine.is_dir()


def test_it_is_certified_beside_itself(command: Command, wheels: Small, mine: Path) -> None:
    command(wheels.root, "render", MINE)
    before = snapshot(wheels.project)
    answer = command(wheels.root, "certify", MINE, "--engine", "host")
    assert answer.code == 0, answer.err
    assert [path.name for path in (mine / MINE / "certificates").iterdir()] == ["cpu-host.json"]
    assert command(wheels.root, "show", MINE).out.startswith("Mine\n")
    assert snapshot(wheels.project) == before


def test_the_option_names_the_folder_too(wheels: Small, mine: Path) -> None:
    elsewhere = mine.rename(mine.with_name("elsewhere"))
    answer = vetted(wheels.root, "--stacks", str(elsewhere), "show", MINE, VETTED_STACKS="")
    assert (answer.code, answer.out) == (1, f"{MINE} is not certified\nnext: vetted certify {MINE}\n")


def test_one_name_in_both_folders_is_refused(command: Command, wheels: Small, mine: Path) -> None:
    (mine / MINE).rename(mine / TINY)
    answer = command(wheels.root, "list")
    assert answer.code == 3
    assert f"the stack {TINY} is in lockfiles/ and in {mine}" in answer.err


def test_a_folder_that_is_not_there_is_named(command: Command, wheels: Small, mine: Path) -> None:
    shutil.rmtree(mine)
    answer = command(wheels.root, "list")
    assert answer.code == 3
    assert f"{mine}, which VETTED_STACKS or --stacks names, is not a folder" in answer.err
    assert f"next: mkdir -p {mine}" in answer.err


def test_a_stack_that_is_in_neither_folder_is_said_of_both(command: Command, wheels: Small, mine: Path) -> None:
    answer = command(wheels.root, "show", "nope")
    assert answer.code == 3
    assert f"lockfiles/nope/stack.toml does not exist, nor is it in {mine}" in answer.err


def test_no_commit_of_the_project_is_said_to_have_it(wheels: Small, mine: Path) -> None:
    assert wheels.project.owns(MINE) and not wheels.project.owns(TINY)
    assert stack.shipped(wheels.project) == [TINY]
    source = origin.of(wheels.project, MINE)
    assert source.commit is None or source.dirty
    assert mine.is_dir()
