"""What public threads solved: matched by the words of an error and the releases, and a file that holds together."""

from __future__ import annotations

import re

import pytest

from doctor.answer import diagnose
from doctor.base import versions
from doctor.finding import EXPLAINS, SILENT
from doctor.know import threads
from doctor.know.threads import Thread
from tests.unit.doctor import kit

MOVED = Thread(
    package="reader",
    words=["a cache of Local", "is not supported"],
    affected={"reader": "<2.0", "files": ">=5"},
    fix=[{"reader": ">=2.0"}, {"files": "<5"}],
    cause="files 5 calls the protocol otherwise",
    urls=["https://github.com/a/b/issues/1"],
    sample="NotImplementedError: a cache of LocalFiles is not supported",
    confirmed=True,
)
SLOW = MOVED._replace(words=[], affected={"reader": ">=1.2,<1.4"}, fix=[{"reader": ">=1.4"}], sample="every read leaks")


def found(
    monkeypatch: pytest.MonkeyPatch, thread: Thread, packages: dict[str, str], error: str
) -> list[tuple[str, int]]:
    monkeypatch.setattr(threads, "load", lambda: (thread,))
    case = kit.reported(packages, error)
    return [(finding.confidence, finding.shown) for finding in diagnose.findings(case) if finding.rule == "reported"]


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ({"reader": "1.9", "files": "5.1"}, [("likely", EXPLAINS)]),
        ({"reader": "1.9"}, [("likely", EXPLAINS)]),
        ({"files": "5.1"}, [("possible", EXPLAINS)]),  # the one at fault is not stated
        ({}, [("possible", EXPLAINS)]),
        ({"reader": "2.0"}, []),
        ({"reader": "1.9", "files": "4.9"}, []),
    ],
)
def test_versions_decide(
    monkeypatch: pytest.MonkeyPatch, packages: dict[str, str], expected: list[tuple[str, int]]
) -> None:
    assert found(monkeypatch, MOVED, packages, f"step 1\n{MOVED.sample}\n") == expected
    assert found(monkeypatch, MOVED._replace(confirmed=False), packages, MOVED.sample) == [
        ("possible", shown) for _, shown in expected
    ]


def test_all_words_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, MOVED, {"reader": "1.9"}, "NotImplementedError: this is not supported") == []


def test_a_fault_without_an_error_may_apply_to_a_run_that_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, SLOW, {"reader": "1.3"}, "") == [("possible", SILENT)]
    assert found(monkeypatch, SLOW, {"reader": "1.3"}, "ValueError: no") == []
    assert found(monkeypatch, SLOW, {"reader": "1.4"}, "") == []
    assert found(monkeypatch, SLOW, {}, "") == []
    old = SLOW._replace(affected={"reader": "<1.4"})
    assert found(monkeypatch, old, {"reader": "1.3"}, "") == []  # it would be said of every old environment


def test_the_answer_names_the_thread_and_a_command_with_every_package(monkeypatch: pytest.MonkeyPatch) -> None:
    both = MOVED._replace(fix=[{"reader": ">=2.0", "files": "*"}])
    monkeypatch.setattr(threads, "load", lambda: (both,))
    finding = kit.first(kit.reported({}, both.sample))
    assert finding.commands == ["uv pip install 'reader>=2.0' 'files'"]
    assert finding.remedy == ["reader>=2.0 and files"]
    assert both.urls[0] in finding.evidence[-1]
    assert finding.links == both.urls


def test_the_file_holds_together() -> None:
    lines = threads.load()
    keys = [(thread.package, thread.words, thread.affected, thread.urls) for thread in lines]
    assert keys == sorted(keys, key=lambda key: (key[0], key[3], key[1]))
    assert len({str(key) for key in keys}) == len(keys)
    for thread in lines:
        assert thread.package in thread.affected, thread
        assert thread.fix and thread.cause and thread.sample, thread
        assert max(len(thread.cause), len(thread.sample)) <= 300, thread
        for table in (thread.affected, *thread.fix):
            assert table, thread
            for name, range_ in table.items():
                assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name), thread
                assert versions.specifiers(range_) is not None, thread
        for url in thread.urls:
            assert re.fullmatch(
                r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull|discussions|releases/tag|commit)/[\w.-]+", url
            ), url
        for way in thread.fix:
            bad = [name for name in way if name in thread.affected]
            assert not bad or any(not versions.overlaps(way[name], thread.affected[name]) for name in bad), thread


def test_every_sample_has_its_words_and_they_tell_something() -> None:
    for thread in threads.load():
        if thread.words:
            assert thread.shows_in(thread.sample), thread
            assert sum(map(len, thread.words)) >= 16, "words as short as these are in other errors, too"
