"""The longest test has a file of its own, so that it can run beside the others."""

from __future__ import annotations

import pytest

from tests.engine.conftest import STACK, Workshop

pytestmark = pytest.mark.usefixtures("docker")


def test_two_builds_without_cache_are_identical(workshop: Workshop) -> None:
    proof = workshop.json("build", STACK, "--prove")
    assert proof["identical"] is True
    assert proof["first"] == proof["second"] == workshop.json("build", STACK)["manifest"]
