"""A folder of the user's own: `vetted use --into` replaces what an earlier one wrote there, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.image.build import Built
from tests.conftest import TINY, Small
from tests.registry.conftest import make_image
from tests.unit.conftest import Command


@pytest.fixture(autouse=True)
def no_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")


@pytest.fixture
def built(small: Small) -> Built:
    built = make_image(small)
    small.issue("docker", subject=built.image.manifest)
    return built


@pytest.fixture
def mine(tmp_path: Path, built: Built) -> Path:
    assert built
    (tmp_path / "mine").mkdir()
    return tmp_path / "mine"


def tree(folder: Path) -> dict[str, str]:
    """Every entry: a file with its text, a link with its target."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vetted/certificates.json", "{}"),
        ("vetted/certificates.json", "mine"),
        ("vetted/advisories.json", "[]"),
        ("vetted/cosign.pub", "mine"),
        ("vetted/cosign.pub", "-----BEGIN PUBLIC KEY-----\n"),
        ("vetted/certificates/0.json", "{}"),
        ("vetted/certificates/7.json", '{"mine": 1}'),
        ("vetted", "a file"),
    ],
)
def test_a_file_of_the_user_stays_and_is_named(
    command: Command, small: Small, mine: Path, name: str, text: str
) -> None:
    (mine / name).parent.mkdir(parents=True, exist_ok=True)
    (mine / name).write_text(text)
    before = tree(mine)
    answer = command(small.root, "use", TINY, "--into", str(mine))
    assert answer.code == 6
    assert str(mine / name) in answer.err and f"--into {mine}/training" in answer.err
    assert tree(mine) == before


def test_files_that_are_not_written_stay_and_those_of_an_earlier_use_are_replaced(
    command: Command, small: Small, mine: Path
) -> None:
    for name in ("vetted/notes.txt", "vetted/certificates/notes.txt", "vetted/cosign-team.pub", "runs/.gitignore"):
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text("mine")
    assert command(small.root, "use", TINY, "--into", str(mine)).code == 0
    (mine / "vetted" / "certificates" / "7.json").write_text((mine / "vetted" / "certificates" / "0.json").read_text())
    first = tree(mine)
    assert command(small.root, "use", TINY, "--into", str(mine)).code == 0
    again = tree(mine)
    assert first.keys() - again.keys() == {"vetted/certificates/7.json"}, "which an earlier one may have written"
    assert {name for name, text in again.items() if text == "mine"} == {
        "vetted/notes.txt", "vetted/certificates/notes.txt", "vetted/cosign-team.pub", "runs/.gitignore",
    }  # fmt: skip


def test_what_an_interrupted_use_left_is_written_again(command: Command, small: Small, mine: Path) -> None:
    assert command(small.root, "use", TINY, "--into", str(mine)).code == 0
    (mine / "compose.yaml").unlink()
    (mine / "vetted" / "certificates.json").unlink()
    assert command(small.root, "use", TINY, "--into", str(mine)).code == 0
    assert (mine / "vetted" / "certificates.json").is_file()


@pytest.mark.parametrize("name", ["compose.yaml", ".env", "vetted", "vetted/certificates", ".huggingface/hub"])
def test_a_link_is_neither_followed_nor_lost(
    command: Command, small: Small, mine: Path, tmp_path: Path, name: str
) -> None:
    assert command(small.root, "use", TINY, "--into", str(mine)).code == 0
    (mine / name).rename(tmp_path / "elsewhere")
    (mine / name).symlink_to(tmp_path / "elsewhere")
    before, behind = tree(mine), tmp_path / "elsewhere"
    content = behind.read_text() if behind.is_file() else tree(behind)
    answer = command(small.root, "use", TINY, "--into", str(mine))
    assert answer.code == 6
    assert str(mine / name) in answer.err and "\nnext: " in answer.err
    assert tree(mine) == before
    assert (behind.read_text() if behind.is_file() else tree(behind)) == content


def test_a_link_to_nowhere_is_not_replaced(command: Command, small: Small, mine: Path) -> None:
    (mine / "compose.yaml").symlink_to("nowhere")
    assert command(small.root, "use", TINY, "--into", str(mine)).code == 6
    assert (mine / "compose.yaml").is_symlink()


def test_what_was_downloaded_to_the_old_cache_is_kept_by_one_command(
    command: Command, small: Small, mine: Path
) -> None:
    (mine / "runs" / ".huggingface" / "hub" / "models--x").mkdir(parents=True)
    (mine / "runs" / ".huggingface" / "datasets").mkdir()
    (mine / "runs" / ".huggingface" / "hub" / "models--x" / "weights").write_text("1")
    answer = command(small.root, "use", TINY, "--into", str(mine))
    assert answer.code == 6
    assert f"next: mv {mine}/runs/.huggingface {mine}/.huggingface, and run this again" in answer.err
    assert not (mine / "compose.yaml").exists()
    (mine / "runs" / ".huggingface").rename(mine / ".huggingface")
    assert command(small.root, "use", TINY, "--into", str(mine)).code == 0
    assert (mine / ".huggingface" / "hub" / "models--x" / "weights").read_text() == "1"


@pytest.mark.parametrize("name", [".huggingface", ".huggingface/hub"])
def test_a_link_in_the_old_cache_is_not_moved_along(
    command: Command, small: Small, mine: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "private").mkdir()
    (mine / "runs" / name).parent.mkdir(parents=True)
    (mine / "runs" / name).symlink_to(tmp_path / "private")
    answer = command(small.root, "use", TINY, "--into", str(mine))
    assert answer.code == 6
    assert f"next: rm -r {mine}/runs/.huggingface, and run this again" in answer.err


def test_an_old_cache_without_downloads_is_in_nobodys_way(command: Command, small: Small, mine: Path) -> None:
    for name in ("hub", "datasets"):
        (mine / "runs" / ".huggingface" / name).mkdir(parents=True)
        (mine / "runs" / ".huggingface" / name / ".gitignore").touch()
    assert command(small.root, "use", TINY, "--into", str(mine)).code == 0


def test_a_link_to_an_env_of_other_programs_is_not_lost_in_the_clone(
    command: Command, small: Small, mine: Path
) -> None:
    (mine / "shared.env").write_text("A=1\n")
    (small.root / ".env").symlink_to(mine / "shared.env")
    answer = command(small.root, "use", TINY)
    assert answer.code == 6
    assert f"{small.root}/.env is a link" in answer.err and "cp --remove-destination" in answer.err
    assert (small.root / ".env").is_symlink() and (mine / "shared.env").read_text() == "A=1\n"
