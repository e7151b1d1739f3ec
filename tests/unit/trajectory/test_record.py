"""The file of a record: exact in what it must be, small, and no traceback whatever is in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builder.base import errors
from builder.trajectory import record
from builder.trajectory.record import Place, Record
from tests.unit.trajectory.kit import make


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = make(1, seeds=2, failed={7: "FloatingPointError: kl is nan at step 3"})
    file = tmp_path / "cpu-host.json"
    file.write_text(written.to_json())
    assert record.read(file, "it") == written
    assert Record.model_validate(json.loads(written.to_json())) == written
    assert sum(line.lstrip().startswith('"reward"') for line in file.read_text().splitlines()) == 2


def test_bits_see_what_five_digits_do_not() -> None:
    first, other, again = (record.seed_of(1, {"loss": [value]}) for value in (0.123456789, 0.123456788, 0.123456789))
    assert first.numbers == other.numbers == {"loss": [0.12346]}
    assert first.bits != other.bits and first == again


def test_files_are_named_by_the_place() -> None:
    place = Place(device="cpu", engine="host", hardware="x")
    assert record.name(place) == "cpu-host"
    assert record.name(place.model_copy(update={"threads": 2})) == "cpu-host-2threads"


def broken(change: dict[str, Any]) -> str:
    return json.dumps({**json.loads(make(1, seeds=2, steps=3).to_json()), **change})


WHOLE = make(1, seeds=2, steps=3).to_json()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (WHOLE[:-200], "not JSON"),
        ("", "not JSON"),
        ("[]", "not an object"),
        ("{}", "Field required"),
        (broken({"seeds": json.loads(WHOLE)["seeds"] * 2}), "a seed comes twice"),
        (broken({"failed": {"1": "why"}}), "a seed comes twice"),
        (broken({"steps": 4}), "has not 4 steps"),
        (broken({"lock": "sha256:1"}), "lock"),
        (broken({"more": 1}), "more"),
        (WHOLE.replace('"reward": [', '"reward": [NaN, ', 1), "reward"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_damaged_file_is_refused_in_words(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "cpu-host.json"
    file.write_text(content)
    with pytest.raises(errors.BadInputError, match=words) as caught:
        record.read(file, "lockfiles/one/trajectories/cpu-host.json")
    assert "git checkout lockfiles/one" in caught.value.next_step
