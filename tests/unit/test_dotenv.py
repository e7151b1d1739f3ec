""".env: two variables are set, and everything else a person keeps there stays."""

from __future__ import annotations

import pytest

from builder import dotenv
from tests.conftest import TINY, Small

VALUES = {"VETTED_IMAGE": "a.b/c@sha256:1", "VETTED_STACK": "tiny"}
BOTH = "VETTED_IMAGE=a.b/c@sha256:1\nVETTED_STACK=tiny\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", BOTH),
        (BOTH, BOTH),
        ("PORT=1", f"PORT=1\n{BOTH}"),
        ("# mine\n\nPORT=1\n", f"# mine\n\nPORT=1\n{BOTH}"),
        ("A=1\nVETTED_STACK=old\nB=2\n", "A=1\nVETTED_STACK=tiny\nB=2\nVETTED_IMAGE=a.b/c@sha256:1\n"),
        ("export VETTED_IMAGE = old\nVETTED_STACK=x\nVETTED_IMAGE=older\n", BOTH),
        ("#VETTED_IMAGE=old\nMY_VETTED_IMAGE=x\n", f"#VETTED_IMAGE=old\nMY_VETTED_IMAGE=x\n{BOTH}"),
    ],
)
def test_the_variables_are_set_once_and_the_rest_stays(before: str, after: str) -> None:
    assert dotenv.replaced(before, VALUES) == after
    assert dotenv.replaced(after, VALUES) == after


def test_a_file_of_any_bytes_keeps_them(small: Small) -> None:
    path = dotenv.path(small.project)
    path.write_bytes(b"NAME=\xff\xfe\n")
    assert dotenv.pin(small.project, TINY, "a.b/c@sha256:1", small.scratch())
    assert path.read_bytes() == b"NAME=\xff\xfe\n" + BOTH.encode()
    assert not dotenv.pin(small.project, TINY, "a.b/c@sha256:1", small.scratch())
