"""What others have already solved: the index of changes, how it is made and how it is searched."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest

from doctor.checks import changes as check
from doctor.finding import Finding
from doctor.know import changes
from doctor.know.changes import Change
from scripts import change_index
from scripts.change_index import Index, Row
from tests import parts
from tests.unit.doctor.kit import reported

ATTRIBUTE = "AttributeError: 'GRPOTrainer' object has no attribute 'current_gradient_accumulation_steps'"


def solved(packages: dict[str, str], error: str) -> list[Finding]:
    return list(check.solved_elsewhere(reported(packages, error)))


def test_the_change_that_fixed_an_error_is_named_with_its_link_and_its_release() -> None:
    (finding,) = solved({"trl": "0.26.2"}, ATTRIBUTE)
    assert (finding.rule, finding.confidence) == ("solved-elsewhere", "possible")
    assert finding.links[0] == "https://github.com/huggingface/trl/pull/4852"
    assert (finding.remedy, finding.commands) == (["trl>=0.27.1, if the change is about this"], [])
    assert "current_gradient_accumulation_steps" in finding.title


@pytest.mark.parametrize(
    ("packages", "error"),
    [
        ({"trl": "0.27.1"}, ATTRIBUTE),  # it has the change
        ({"trl": "0.27.0"}, ""),
        ({"trl": "0.26.2"}, "AttributeError: 'GRPOTrainer' object has no attribute 'nobody_ever_named_this'"),
        ({"trl": "0.26.2"}, "ValueError: the GRPOTrainer wants a ValueError in 'trl.trainer.grpo_trainer'"),
        ({"peft": "0.14.0"}, ATTRIBUTE.replace("GRPO", "My")),  # of a package that nobody named
    ],
)
def test_what_an_error_does_not_say_is_not_found(packages: dict[str, str], error: str) -> None:
    assert [finding for finding in solved(packages, error) if "trl" in finding.packages] == []


ROWS = tuple(
    Change("thing", "own/thing", number, (), "1.0", "1.1", changes.words_of(words))
    for number, words in enumerate(
        ["load_the_shards first_step", "load_the_shards save_the_shards", "other", "first_step"]
    )
)


@pytest.mark.parametrize(
    ("quoted", "message", "places", "number"),
    [
        (["save_the_shards"], [], [], 1),  # one word is enough, where the error quotes it
        ([], ["save_the_shards"], [], None),
        ([], ["save_the_shards"], ["load_the_shards"], 1),
        ([], ["load_the_shards"], ["first_step"], 0),
        ([], [], ["save_the_shards", "load_the_shards"], None),  # frames alone tell nothing
        (["other"], [], [], None),  # too short
        (['" OR 1'], ['x" NEAR('], [], None),
    ],
)
def test_words_must_be_rare_and_said(
    monkeypatch: pytest.MonkeyPatch, quoted: list[str], message: list[str], places: list[str], number: int | None
) -> None:
    monkeypatch.setattr(changes, "of_package", lambda _: ROWS)
    changes._counts.cache_clear()
    try:
        match = changes.best("thing", "0.9", quoted, message, places)
        assert (match.change.number if match else None) == number
        assert changes.best("thing", "1.0.5", quoted, message, places) is None  # it may have the change
    finally:
        changes._counts.cache_clear()


def test_a_python_without_sqlite_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "sqlite3", None)
    assert solved({"trl": "0.26.2"}, ATTRIBUTE) == []


def test_the_kept_index_is_as_the_generator_writes_it() -> None:
    assert change_index.wrong(change_index.FOLDER) == []
    assert {"trl", "vllm", "transformers", "deepspeed", "peft"} <= set(changes.packages())


def test_no_person_is_in_the_index() -> None:
    for package in changes.packages():
        assert not any("@" in word for change in changes.of_package(package) for word in change.words)


def git(repository: Path, *arguments: str) -> None:
    person = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **person, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run([parts.git(), "-C", str(repository), *arguments], check=True, capture_output=True, env=environment)


def commit(repository: Path, source: str, message: str, file: str = "thing.py") -> None:
    (repository / file).write_text(source)
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", message)


def test_the_index_is_read_from_the_tags_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, "old_helper_name = 1\n", "Begin (#1)")
    git(tmp_path, "tag", "v1.0.0")
    commit(tmp_path, "def new_helper_name(): ...\n", "Fix crash of `some_option_here` (#7)\n\nFixes #5, closes: #6\n\n"
           "Co-authored-by: Some_Body Name <some_body@example.org>\n")  # fmt: skip
    commit(tmp_path, "third_helper_name = 1\n", "Add a feature (#8)")
    commit(tmp_path, "", "Fix a typo (#9)")
    git(tmp_path, "tag", "v1.1.0")
    git(tmp_path, "tag", "v1.2.0rc1")
    monkeypatch.setitem(change_index.PACKAGES, "thing", ("own/thing", "1.0.0"))
    entry = change_index.index("thing", str(tmp_path), "2026-01-01")
    assert entry["changes"] == [Row(7, [5, 6], "1.0.0", "1.1.0", "old_helper_name some_option_here")]
    assert (entry["repository"], entry["until"]) == ("own/thing", "1.1.0")


def test_without_tags_a_version_that_is_raised_ends_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "--quiet")
    for number, version in enumerate(["1.0.0.dev0", "1.1.0.dev0", "1.1.1.dev0", "1.3.0.dev0"]):
        commit(tmp_path, f'__version__ = "{version}"\n', f"Raise to {version}", "version.py")
        commit(tmp_path, f"x = {number}\n", f"Fix the_thing_number_{number} (#{number + 1})")
    monkeypatch.setitem(change_index.PACKAGES, "thing", ("own/thing", "1.0.0"))
    monkeypatch.setitem(change_index.VERSION_FILES, "thing", "version.py")
    rows = change_index.index("thing", str(tmp_path), "2026-01-01")["changes"]
    assert [(row.number, row.after, row.release) for row in rows] == [(2, "1.0.0", "1.1.0"), (3, "1.1.0", "1.2.0")]


def test_a_damaged_index_is_seen(tmp_path: Path) -> None:
    entry: Index = {
        "date": "",
        "repository": "a/b",
        "until": "1",
        "changes": [Row(2, [], "2", "1", "x"), Row(1, [], "1", "2", "x")],
    }
    (tmp_path / "thing.json.gz").write_bytes(gzip.compress(json.dumps(entry).encode()))
    (tmp_path / "index.json").write_text('{"packages": []}')
    assert len(change_index.wrong(tmp_path)) == 4
