"""The draft of an advisory that a bisection writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base import tomlfile
from builder.bisect import draft
from builder.intent import advisory
from builder.intent.advisory import Advisory
from tests.unit.bisect.conftest import BAD, GOOD, Parts

pytestmark = pytest.mark.engine  # each of them installs a dozen environments


def test_the_draft_is_a_valid_advisory_that_matches_the_bad_set_alone(parts: Parts) -> None:
    parts.breaks('has("b") and has("g")')
    result = parts.ask()
    path = Path(result["advisory"])
    assert path.name == "VETTED-0001.toml"
    drafted = tomlfile.read(Advisory, path, "draft")
    assert drafted.matches({"part-b": BAD, "part-g": BAD}) == "certain"
    assert drafted.matches({"part-b": BAD, "part-g": GOOD}) == "no"
    assert (drafted.probes, drafted.severity) == (["works"], "crash")
    assert drafted.shows_in("ValueError: it broke")
    assert [fix.packages for fix in drafted.fix] == [{"part-b": "==1.0"}, {"part-g": "==1.0"}]
    assert advisory.names(parts.small.project) == []
    assert drafted.references[0].url == draft.NOWHERE


@pytest.mark.parametrize(
    ("header", "url"),
    [
        (
            "Project-URL: Issues, https://example.org/a/issues\nHome-page: https://example.org/a",
            "https://example.org/a/issues",
        ),
        ("Home-page: https://example.org/a", "https://example.org/a"),
        ("Project-URL: Documentation, https://example.org/docs/a", draft.NOWHERE),
        ("Home-page: not a place", draft.NOWHERE),
    ],
)
def test_the_draft_names_where_the_culprit_takes_reports(parts: Parts, header: str, url: str) -> None:
    parts.wheel("part-h", BAD, [f"part-a\n{header}"])
    parts.breaks('has("h")')
    drafted = tomlfile.read(Advisory, Path(parts.ask()["advisory"]), "draft")
    assert drafted.references[0].url == url
