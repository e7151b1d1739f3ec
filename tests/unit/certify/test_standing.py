"""Where a stack is certified: which of its certificates count, and how one that has expired is shown."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any

import pytest

from builder.base import canonical
from builder.certify import certificate, standing
from tests.conftest import GOOD_RUN, Small
from tests.unit.intent import records

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


def break_result(document: Any) -> None:
    document["predicate"]["result"] = "FAILED"


def break_machine(document: Any) -> None:
    configuration = {resource["name"]: resource for resource in document["predicate"]["configuration"]}
    configuration["hardware"]["annotations"]["cores"] = 0


def break_lock(document: Any) -> None:
    configuration = {resource["name"]: resource for resource in document["predicate"]["configuration"]}
    configuration["lock"]["digest"]["sha256"] = "0" * 64


def break_configuration(document: Any) -> None:
    document["predicate"]["configuration"].append({"name": "more"})


def change_nothing(_document: Any) -> None: ...


@pytest.mark.parametrize(
    ("change", "mentions"),
    [(change_nothing, 1), (break_result, 0), (break_machine, 0), (break_lock, 0), (break_configuration, 0)],
)
def test_what_was_not_earned_is_not_mentioned(small: Small, change: Callable[[Any], None], mentions: int) -> None:
    path = small.issue("docker")
    small.suite(GOOD_RUN + "# another line\n")
    document = json.loads(path.read_text())
    change(document)
    path.write_text(canonical.dumps(document))
    assert len(standing.earlier_on(small.project, small.lock)) == mentions


def test_what_is_not_valid_under_todays_suite_is_no_earlier_one(small: Small) -> None:
    path = small.issue("docker")
    document = json.loads(path.read_text())
    document["subject"][0]["name"] = "vetted/another:tag"
    path.write_text(canonical.dumps(document))
    assert (standing.certified_on(small.project, small.lock), standing.earlier_on(small.project, small.lock)) == (
        [],
        [],
    )


def test_what_an_advisory_withdraws_is_not_mentioned(small: Small) -> None:
    small.issue("docker")
    small.suite(GOOD_RUN + "# another line\n")
    assert len(standing.earlier_on(small.project, small.lock)) == 1
    records.affecting(small, '{ tiny-lib = "<2" }')
    assert standing.earlier_on(small.project, small.lock) == []
