"""Known vulnerabilities by an export of OSV: records of our own, by the rules of the schema."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from builder.base import errors
from builder.lock import osv
from builder.lock.osv import DEBIAN, PYPI, Installed, Match
from tests.conftest import Small


def record(name: str, *affected: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": name, "modified": "2026-11-01T00:00:00Z", "affected": list(affected), **fields}


def of(name: str, *events: dict[str, str], kind: str = PYPI, versions: tuple[str, ...] = ()) -> dict[str, Any]:
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}] if events else []
    return {"package": {"ecosystem": kind, "name": name}, "ranges": ranges, "versions": list(versions)}


@pytest.fixture
def export(tmp_path: Path) -> Path:
    folder = tmp_path / "osv"
    folder.mkdir()
    return folder


def add(folder: Path, *documents: dict[str, Any]) -> None:
    for document in documents:
        (folder / f"{document['id']}.json").write_text(json.dumps(document))


def distribution(name: str, version: str) -> Installed:
    return Installed(PYPI, name, version, (name,))


def matched(folder: Path, *things: Installed) -> list[Match]:
    return osv.matches(folder, things)[0]


BEGIN = {"introduced": "0"}


@pytest.mark.parametrize(
    ("events", "version", "fixed"),
    [
        ([BEGIN], "1.0", ""),
        ([BEGIN, {"fixed": "2.0"}], "1.9", "2.0"),
        ([BEGIN, {"fixed": "2.0"}], "2.0", None),
        ([BEGIN, {"fixed": "2.0"}], "2.0rc1", "2.0"),
        ([{"introduced": "1.5"}, {"fixed": "2.0"}], "1.4", None),
        ([{"introduced": "1.5"}, {"fixed": "2.0"}], "1.5", "2.0"),
        ([BEGIN, {"last_affected": "1.5"}], "1.5", ""),
        ([BEGIN, {"last_affected": "1.5"}], "1.5.1", None),
        ([BEGIN, {"fixed": "1.2"}, {"introduced": "2.0"}, {"fixed": "2.3"}], "1.5", None),
        ([BEGIN, {"fixed": "1.2"}, {"introduced": "2.0"}, {"fixed": "2.3"}], "2.1", "2.3"),
        ([BEGIN, {"fixed": "1.2"}, {"introduced": "2.0"}, {"fixed": "2.3"}], "1.0", "1.2"),
        ([{"fixed": "2.3"}, {"introduced": "2.0"}, {"fixed": "1.2"}, BEGIN], "2.1", "2.3"),  # in any order
        ([{"introduced": "2.0"}, {"fixed": "2.0"}], "2.0", ""),  # it contradicts itself
        ([BEGIN, {"limit": "3.0"}], "3.1", None),
        ([BEGIN, {"limit": "*"}], "3.1", ""),
        ([{"introduced": "1.10"}, {"fixed": "1.20"}], "1.9", None),  # numbers, not text
    ],
)
def test_a_range_is_evaluated_as_the_schema_says(
    export: Path, events: list[dict[str, str]], version: str, fixed: str | None
) -> None:
    add(export, record("PYSEC-2026-1", of("tiny-lib", *events)))
    matches = matched(export, distribution("tiny-lib", version))
    assert [match.fixed for match in matches] == ([] if fixed is None else [fixed])


def test_versions_that_are_listed_count_without_a_range(export: Path) -> None:
    add(export, record("PYSEC-2026-1", of("tiny-lib", versions=("1.0", "1.1"))))
    (match,) = matched(export, distribution("tiny-lib", "1.1.0"))
    assert (match.affected, match.fixed) == ("the listed versions", "")
    assert matched(export, distribution("tiny-lib", "1.2")) == []


def test_names_are_compared_as_the_ecosystem_does(export: Path) -> None:
    add(export, record("PYSEC-2026-1", of("Tiny_Lib", BEGIN)), record("GO-1", of("tiny-lib", BEGIN, kind="Go")))
    assert [match.name for match in matched(export, distribution("tiny-lib", "1"))] == ["PYSEC-2026-1"]


@pytest.mark.parametrize("events", [[BEGIN, {"fixed": "2.0-patched by us"}], [{"introduced": "one"}]])
def test_what_cannot_be_compared_counts_as_affected(export: Path, events: list[dict[str, str]]) -> None:
    add(export, record("PYSEC-2026-1", of("tiny-lib", *events)))
    (match,) = matched(export, distribution("tiny-lib", "9.0"))
    assert match.affected.startswith("not comparable: ") and match.fixed == ""


def test_withdrawn_records_and_ranges_of_commits_count_for_nothing(export: Path) -> None:
    commits = {"package": {"ecosystem": PYPI, "name": "tiny-lib"}, "ranges": [{"type": "GIT", "events": [BEGIN]}]}
    withdrawn = record("PYSEC-2026-2", of("tiny-lib", BEGIN), withdrawn="2026-11-02T00:00:00Z")
    add(export, record("PYSEC-2026-1", commits, {"ranges": []}), withdrawn)
    assert osv.matches(export, [distribution("tiny-lib", "1")]) == ([], 2)


def test_records_of_several_databases_about_one_vulnerability_are_one_match(export: Path) -> None:
    add(
        export,
        record("GHSA-aaaa", of("tiny-lib", BEGIN, {"fixed": "2.0"}), aliases=["CVE-2026-1"]),
        record("PYSEC-2026-1", of("tiny-lib", BEGIN, {"fixed": "2.1"}), aliases=["CVE-2026-1"], summary="It leaks."),
        record("PYSEC-2026-2", of("tiny-lib", BEGIN), aliases=["CVE-2026-2"]),
    )
    first, second = matched(export, distribution("tiny-lib", "1.0"))
    assert first.names == ("CVE-2026-1", "GHSA-aaaa", "PYSEC-2026-1")
    assert (first.affected, first.fixed, first.summary) == ("<2.0 or <2.1", "2.1", "It leaks.")
    assert (second.name, second.affected, second.fixed) == ("CVE-2026-2", "all versions", "")


@pytest.mark.parametrize(
    ("ecosystem", "release", "count"), [("Debian:12", "12", 1), ("Debian:13", "12", 0), ("Debian", "12", 1)]
)
def test_debians_records_are_of_a_release_and_a_source(export: Path, ecosystem: str, release: str, count: int) -> None:
    events = (BEGIN, {"fixed": "1:2.38.1-5+deb12u4"})
    add(export, record("DEBIAN-CVE-2026-3", of("util-linux", *events, kind=ecosystem), upstream=["CVE-2026-3"]))
    thing = Installed(DEBIAN, "util-linux", "1:2.38.1-5+deb12u3", ("bsdutils", "mount"), release)
    matches = matched(export, thing)
    assert len(matches) == count
    assert all((match.name, match.fixed) == ("CVE-2026-3", "1:2.38.1-5+deb12u4") for match in matches)
    newer = Installed(DEBIAN, "util-linux", "1:2.38.1-5+deb12u10", ("bsdutils",), release)
    assert matched(export, newer) == []


def test_what_a_lock_installs_is_named_as_osv_names_it(small: Small) -> None:
    """Without a build's own part: 2.13.0+cpu is no later than 2.13.0."""
    small.edit("requirements.txt", "tiny-lib==1.0", "tiny-lib==1.0+cpu")
    python, debian = osv.installed(small.lock, {"bsdutils": ("util-linux", "2.38.1-5+deb12u3")})
    assert python == distribution("tiny-lib", "1.0")
    assert debian == Installed(DEBIAN, "util-linux", "2.38.1-5+deb12u3", ("bsdutils",), "12")
    (_, unknown) = osv.installed(small.lock, {})
    assert unknown == Installed(DEBIAN, "bsdutils", "1:2.38.1-5+deb12u3", ("bsdutils",), "12")


def test_an_export_is_read_as_it_is_published(export: Path) -> None:
    """One all.zip for each ecosystem, in folders."""
    (export / "PyPI").mkdir()
    with zipfile.ZipFile(export / "PyPI" / "all.zip", "w") as archive:
        for number in range(3):
            name = f"PYSEC-2026-{number}"
            archive.writestr(f"{name}.json", json.dumps(record(name, of("tiny-lib", BEGIN))))
    matches, count = osv.matches(export, [distribution("tiny-lib", "1")])
    assert ([match.name for match in matches], count) == ([f"PYSEC-2026-{number}" for number in range(3)], 3)


def test_an_export_that_was_cut_short_is_no_clean_bill(export: Path) -> None:
    thing = distribution("tiny-lib", "1")
    with pytest.raises(errors.BadInputError, match="has no OSV record"):
        osv.matches(export, [thing])
    with pytest.raises(errors.BadInputError, match="is no folder"):
        osv.matches(export / "nowhere", [thing])
    whole = json.dumps(record("PYSEC-2026-1", of("tiny-lib", BEGIN)))
    eventless = json.dumps(record("X", {**of("tiny-lib"), "ranges": [{"type": "ECOSYSTEM"}]}))
    bad = {
        "cut.json": (whole[:40], "not JSON"), "list.json": ("[]", "no OSV record"), "all.zip": ("PK", "not a zip file"),
        "deep.json": ("[" * 100_000, "not JSON"),
        "events.json": (eventless, "Field required"),
    }  # fmt: skip
    for name, (text, words) in bad.items():
        (export / name).write_text(text)
        with pytest.raises(errors.BadInputError, match=words) as caught:
            osv.matches(export, [thing])
        assert name in caught.value.what
        (export / name).unlink()
