"""JSON as this project writes it is what the standard library writes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.base import canonical
from tests.conftest import ROOT

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(document=DOCUMENTS)
def test_it_writes_what_the_standard_library_writes(document: object) -> None:
    assert canonical.dumps(document) == json.dumps(document, indent=2) + "\n"


@pytest.mark.parametrize(
    "value", [1, 1.0, True, -0.0, 1e16, 1e-7, 10**30, 'é\u2028\ud800\x00"', [], {}, [[]], {"": {}}]
)
def test_numbers_words_and_empty_things(value: object) -> None:
    assert canonical.dumps([value]) == json.dumps([value], indent=2) + "\n"


def test_the_committed_certificates_are_written_so() -> None:
    for path in sorted(ROOT.glob("lockfiles/*/certificates/*.json")):
        assert canonical.dumps(json.loads(path.read_text())) == path.read_text()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_of_json_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="no number of JSON"):
        canonical.dumps({"value": value})


def test_what_is_nothing_of_json_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes is nothing of JSON"):
        canonical.dumps([b""])
