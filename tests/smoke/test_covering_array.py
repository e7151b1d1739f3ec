"""The rows that the suite reads: written by the script, and with every pair of levels that a run can have."""

from __future__ import annotations

import pytest

from scripts import covering_array
from smoke.kit import array, factors
from smoke.kit import levels as kit

ARRAYS = {name: name.replace("FACTORS", "ROWS") for name in covering_array.SEEDS}


def test_file_is_what_the_script_writes() -> None:
    assert covering_array.FILE.read_text() == covering_array.text()


@pytest.mark.parametrize("name", ARRAYS)
def test_every_possible_pair_of_levels_is_in_some_row(name: str) -> None:
    levels = getattr(kit, name)
    rows = kit.rows(levels, getattr(array, ARRAYS[name])).values()
    covered = {frozenset(pair) for row in rows for pair in covering_array.pairs({n: [row[n]] for n in levels})}
    expected = {frozenset(pair) for pair in covering_array.pairs(levels)}
    assert expected - covered == covering_array.impossible(levels)


def test_impossible_pairs_name_levels_and_say_why() -> None:
    for first, second, reason in kit.IMPOSSIBLE:
        assert any(
            all(level in getattr(kit, array).get(name, ()) for name, level in (first, second)) for array in ARRAYS
        )
        assert first[0] != second[0]
        assert len(reason) > 20


@pytest.mark.parametrize("name", ARRAYS)
def test_every_row_has_options_and_an_objective(name: str) -> None:
    levels = getattr(kit, name)
    for row in kit.rows(levels, getattr(array, ARRAYS[name])).values():
        chosen = factors.options(row)
        assert chosen["steps_per_generation"] == factors.micro_batches(row) > 0
        assert factors.objective(row).temperature == chosen["temperature"]
        assert factors.completions(row) * factors.micro_batches(row) % factors.generations(row) == 0 or "group" in row


SAPO, VESPO = {"loss": "sapo", "constants": "own"}, {"loss": "vespo", "constants": "own"}
MASKED = {"off-policy": "masked"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("FACTORS", SAPO),
        ("FACTORS", VESPO),
        ("FACTORS", MASKED),
        ("SAMPLER_FACTORS", VESPO),
        ("SAMPLER_FACTORS", MASKED),
        ("RANK_FACTORS", MASKED),
    ],
)
def test_what_shows_only_off_policy_is_off_policy_in_some_row(name: str, shown: dict[str, str]) -> None:
    rows = kit.rows(getattr(kit, name), getattr(array, ARRAYS[name])).values()
    having = [row for row in rows if shown.items() <= row.items()]
    assert any(factors.micro_batches(row) * factors.iterations(row) > factors.accumulation(row) for row in having)


def test_options_that_a_release_lacks_leave_a_row_out() -> None:
    row = kit.rows(kit.FACTORS, array.ROWS)["row 1"]
    chosen = factors.options(row)
    known = set(chosen)
    assert factors.supported(row, known, {row["loss"]}) == (chosen, "")
    assert factors.supported(row, known, set())[1] == f"no loss_type {row['loss']}"
    assert factors.supported(row, known - {"beta"}, {row["loss"]})[1] == "no option beta"
