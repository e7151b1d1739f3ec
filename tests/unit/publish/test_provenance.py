"""The provenance that somebody signed: what it names, or that Vetted did not make it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from builder.publish import provenance


def test_the_stack_and_the_lock_are_read_whatever_else_it_says() -> None:
    parameters = {"stack": "tiny", "lock": "sha256:1", "later": "unknown"}
    assert provenance.stack_of({"buildDefinition": {"externalParameters": parameters}, "later": []}) == (
        "tiny", "sha256:1",
    )  # fmt: skip


@pytest.mark.parametrize(
    "predicate",
    [
        {}, {"buildDefinition": []}, {"buildDefinition": {"externalParameters": None}},
        {"buildDefinition": {"externalParameters": {"stack": "tiny"}}},
        {"buildDefinition": {"externalParameters": {"stack": ["tiny"], "lock": "sha256:1"}}},
    ],
)  # fmt: skip
def test_what_vetted_did_not_make_names_no_stack(predicate: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        provenance.stack_of(predicate)
