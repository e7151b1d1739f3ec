"""Where a stack is certified: which of its certificates count, and how one that has expired is shown."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any

import pytest

from builder.base import errors
from builder.certify import certificate, standing
from tests.conftest import GOOD_RUN, Small

DAY = datetime.date(2026, 1, 1)
LAST = DAY + certificate.LIFETIME


def test_a_stack_without_certificates_is_certified_nowhere(small: Small) -> None:
    assert standing.certified_on(small.project, small.lock) == []


def test_the_subject_is_named_beside_the_hardware(small: Small) -> None:
    hardware = certificate.read(small.issue("docker")).hardware
    small.issue("host")
    assert standing.certified_on(small.project, small.lock) == [f"{hardware} (image)", f"{hardware} (lock)"]


def test_an_expired_certificate_says_so_only_when_a_day_is_given(small: Small) -> None:
    small.issue(day=DAY)
    (place,) = standing.certified_on(small.project, small.lock, LAST)
    (late,) = standing.certified_on(small.project, small.lock, LAST + datetime.timedelta(1))
    assert late == f"{place}, expired on {LAST}"
    assert standing.certified_on(small.project, small.lock) == [place]


def test_a_certificate_of_an_earlier_suite_does_not_count(small: Small) -> None:
    small.issue()
    assert standing.earlier_on(small.project, small.lock) == []
    small.suite(GOOD_RUN + "# another line\n")
    assert standing.certified_on(small.project, small.lock) == []


def test_a_certificate_of_an_earlier_suite_is_mentioned_until_one_of_today_is_there(small: Small) -> None:
    hardware = certificate.read(small.issue("docker")).hardware
    small.suite(GOOD_RUN + "# another line\n")
    assert standing.earlier_on(small.project, small.lock) == [f"earlier suite or image: {hardware}"]
    small.issue("host")
    assert standing.earlier_on(small.project, small.lock) == []


def mentioned(small: Small) -> list[str]:
    try:
        return standing.earlier_on(small.project, small.lock)
    except errors.VettedError:  # a file that is no certificate
        return []


@pytest.mark.parametrize("change", [
    lambda statement: statement["predicate"].update(result="FAILED"),
    lambda statement: statement["predicate"]["configuration"][3]["annotations"].update(cores=0),
    lambda statement: statement["predicate"]["configuration"].pop(),
    lambda statement: statement["predicate"]["configuration"][0]["digest"].update(sha256="0" * 64),
])  # fmt: skip
def test_what_was_not_earned_is_not_mentioned(small: Small, change: Callable[[Any], None]) -> None:
    path = small.issue("docker")
    small.suite(GOOD_RUN + "# another line\n")
    assert len(standing.earlier_on(small.project, small.lock)) == 1
    statement = json.loads(path.read_text())
    change(statement)
    path.write_text(json.dumps(statement))
    assert mentioned(small) == []
