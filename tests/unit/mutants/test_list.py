"""What a list of mutants may say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builder.base import errors
from tests.conftest import ROOT
from tests.mutants import mutant
from tests.unit.mutants.conftest import ONE, load


def test_a_list_is_read(tmp_path: Path) -> None:
    (mutant,) = load(tmp_path, ONE)
    assert mutant.model_dump() == {**ONE, "survives": "", "equivalent": ""}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"find": ""}, "`mutant[1].find`: must say something"),
        ({"why": " "}, "`mutant[1].why`: must say something"),
        ({"file": "../tiny_math/sums.py"}, "`mutant[1].file`: '../tiny_math/sums.py' leaves the package"),
        ({"file": "/etc/passwd"}, "`mutant[1].file`: '/etc/passwd' leaves the package"),
        ({"id": "a/b"}, "`mutant[1].id`: "),
        ({"id": "one"}, "`mutant[1].id`: one is there twice"),
        ({"replace": "a + b"}, "`mutant[1].replace` (two): the same as `find`"),
        ({"raplace": "a"}, "`mutant[1].raplace`: unknown key; did you mean `replace`?"),
        ({"replace": None}, "`mutant[1].replace`: Field required"),
    ],
)
def test_what_is_wrong_in_a_list_is_named_by_file_key_and_mutant(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    two = {key: value for key, value in {**ONE, "id": "two", **change}.items() if value is not None}
    with pytest.raises(errors.BadInputError) as caught:
        load(tmp_path, ONE, two)
    assert f"list.toml: {message}" in caught.value.what
    assert "list.toml" in caught.value.next_step


@pytest.mark.parametrize("text", ["", "[[mutant]", "mutant = []", "[[other]]\nid = 'x'"])
def test_a_file_that_is_no_list_is_a_bad_input(tmp_path: Path, text: str) -> None:
    (tmp_path / "list.toml").write_text(text)
    with pytest.raises(errors.BadInputError, match=r"^list\.toml: "):
        mutant.load(tmp_path / "list.toml", "list.toml")
    with pytest.raises(errors.BadInputError, match="does not exist"):
        mutant.load(tmp_path / "none.toml", "none.toml")


def test_the_projects_own_list_is_long_enough_and_spread_over_the_stack() -> None:
    listed = mutant.load(ROOT / "tests" / "mutants.toml", "tests/mutants.toml")
    assert len(listed) >= 40
    packages = {"trl", "transformers", "peft", "bitsandbytes", "deepspeed", "accelerate", "vllm"}
    assert {mutant.package for mutant in listed} >= packages


def test_the_two_lists_of_the_project_are_150_that_count() -> None:
    lists = [mutant.load(ROOT / "tests" / name, name) for name in ("mutants.toml", "mutants-systematic.toml")]
    assert sum(not entry.equivalent for listed in lists for entry in listed) >= 150
