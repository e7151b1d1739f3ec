"""What public threads solved: matched by the words of an error and the releases, and a file that holds together."""

from __future__ import annotations

import re

import pytest

from doctor.answer import commands, diagnose
from doctor.base import versions
from doctor.finding import EXPLAINS, POINTS, SEVERITIES, SILENT
from doctor.know import threads
from doctor.know.threads import Thread
from tests.unit.doctor import kit

MOVED = Thread(
    package="reader",
    words=["a cache of Local", "is not supported"],
    affected={"reader": "<2.0", "files": ">=5"},
    fix=[{"reader": ">=2.0"}, {"files": "<5"}],
    cause="files 5 calls the protocol otherwise",
    severity="crash",
    note="",
    urls=["https://github.com/a/b/issues/1"],
    sample="NotImplementedError: a cache of LocalFiles is not supported",
    confirmed=True,
)
SLOW = MOVED._replace(
    words=[],
    affected={"reader": ">=1.2,<1.4"},
    fix=[{"reader": ">=1.4"}],
    sample="every read leaks",
    severity="waste",
    note="it reads from a network",
)


def confidences(
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
        ({"files": "5.1"}, [("possible", POINTS)]),  # the one at fault is not stated
        ({}, [("possible", POINTS)]),
        ({"reader": "2.0"}, []),
        ({"reader": "1.9", "files": "4.9"}, []),
    ],
)
def test_installeddecide(
    monkeypatch: pytest.MonkeyPatch, packages: dict[str, str], expected: list[tuple[str, int]]
) -> None:
    assert confidences(monkeypatch, MOVED, packages, f"step 1\n{MOVED.sample}\n") == expected
    assert confidences(monkeypatch, MOVED._replace(confirmed=False), packages, MOVED.sample) == [
        ("possible", shown) for _, shown in expected
    ]


def test_an_error_that_names_the_one_at_fault_is_about_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert confidences(monkeypatch, MOVED, {}, f"site-packages/reader/a.py\n{MOVED.sample}") == [("possible", EXPLAINS)]


def test_what_an_advisory_explains_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    error = "ImportError: cannot import name 'HybridCache' from 'transformers'"
    thread = MOVED._replace(package="peft", words=[error], affected={"peft": "<0.18.0"}, fix=[{"peft": ">=0.18.0"}])
    installed = {"peft": "0.17.0", "transformers": "5.0.0"}
    assert confidences(monkeypatch, thread, installed, error) == []
    assert kit.first(kit.reported(installed, error)).rule == "VETTED-0023"


def test_what_the_published_releases_say_is_told_before_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    error = "TypeError: Accelerator.__init__() got an unexpected keyword argument 'use_seedable_sampler'"
    thread = MOVED._replace(package="accelerate", words=[error], affected={"accelerate": "<0.99"}, fix=[{"other": "*"}])
    assert confidences(monkeypatch, thread, {"accelerate": "0.23.0"}, error) == []
    assert kit.first(kit.reported({"accelerate": "0.23.0"}, error)).rule == "moved-name"
    # Where they only say that a name is gone, the thread knows more: what asks for it, and its release.
    error = (
        "ImportError: cannot import name 'is_flash_attn_greater_or_equal_2_10' from "
        "'transformers.modeling_flash_attention_utils'"
    )
    thread = thread._replace(package="ring", words=[error], affected={"ring": "<2", "transformers": ">=5.4"})
    installed = {"ring": "1.0", "transformers": "5.4.0"}
    assert confidences(monkeypatch, thread, installed, error) == [("likely", EXPLAINS)]


def test_all_words_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert confidences(monkeypatch, MOVED, {"reader": "1.9"}, "NotImplementedError: this is not supported") == []


def test_a_fault_without_an_error_may_apply_to_a_run_that_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert confidences(monkeypatch, SLOW, {"reader": "1.3"}, "") == [("possible", SILENT)]
    assert confidences(monkeypatch, SLOW, {"reader": "1.3"}, "ValueError: no") == []
    assert confidences(monkeypatch, SLOW, {"reader": "1.4"}, "") == []
    assert confidences(monkeypatch, SLOW, {}, "") == []
    assert confidences(monkeypatch, SLOW, {"reader": "1.3"}, "the memory grows") == [("possible", POINTS)]
    assert confidences(monkeypatch, SLOW, {"reader": "1.3"}, "the loss is wrong") == [("possible", SILENT)]
    for end in ("<1.4", ">=1.2"):  # it would be said of every old environment, or of every new one
        assert confidences(monkeypatch, SLOW._replace(affected={"reader": end}), {"reader": "1.3"}, "") == []


@pytest.mark.parametrize(
    ("fix", "packages", "command"),
    [
        ([{"reader": ">=2.0", "files": "*"}], {}, ["uv pip install 'reader>=2.0' 'files'"]),
        ([{"reader": "<1.5"}], {}, []),  # a guess is no reason to go back
        ([{"reader": "<1.5"}], {"reader": "1.9"}, ["uv pip install 'reader<1.5'"]),
        ([{"reader": "<0.5"}], {"reader": "1.9"}, []),  # nor is a likely cause, to go far back
        ([{"codec": "*"}, {"reader": "<1.5"}], {"reader": "1.9"}, ["uv pip install 'codec'"]),
    ],
)
def test_a_command_goes_up_or_a_little_back(
    monkeypatch: pytest.MonkeyPatch, fix: list[dict[str, str]], packages: dict[str, str], command: list[str]
) -> None:
    thread = MOVED._replace(fix=fix)
    monkeypatch.setattr(threads, "load", lambda: (thread,))
    case = kit.reported(packages, f"reader: {thread.sample}")
    findings = diagnose.findings(case)
    commands.add(case, findings)
    assert findings[0].commands == command
    assert thread.urls[0] in findings[0].evidence[-1]
    assert findings[0].links == thread.urls


def test_the_answer_says_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "load", lambda: (SLOW,))
    finding = kit.first(kit.reported({"reader": "1.3"}))
    assert finding.decide == ["it reads from a network"]
    assert (finding.severity, finding.commands) == ("waste", [])


def test_the_file_holds_together() -> None:
    lines = threads.load()
    keys = [(thread.package, thread.words, thread.affected, thread.urls) for thread in lines]
    assert keys == sorted(keys, key=lambda key: (key[0], key[3], key[1]))
    assert len({str(key) for key in keys}) == len(keys)
    for thread in lines:
        assert thread.package in thread.affected, thread
        assert thread.fix and thread.cause and thread.sample and thread.severity in SEVERITIES, thread
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


def test_none_names_a_package_index() -> None:
    """uv prints the address of the index in its errors; which one it is differs from machine to machine."""
    for thread in threads.load():
        assert not re.search(r"registry\+\w+://|://\S*/simple\b", str(thread._replace(urls=[]))), thread


def test_no_two_are_about_the_same_words() -> None:
    worded = [thread for thread in threads.load() if thread.words]
    for thread in worded:
        for other in worded:
            if other is not thread and other.package == thread.package and other.affected == thread.affected:
                assert not all(any(word in part for part in other.words) for word in thread.words), (thread, other)


def test_no_advisory_knows_its_error_and_its_package() -> None:
    """What an advisory knows is left to it: two answers about one error would differ some day."""
    for thread in threads.load():
        for advisory in kit.KNOWLEDGE.advisories if thread.words else ():
            if any(thread.package in affected.get("packages", {}) for affected in advisory["affected"]):
                matches = [symptom for symptom in advisory.get("symptoms", []) if re.search(symptom, thread.sample)]
                assert not matches, (advisory["id"], thread)


def test_no_fix_stays_within_the_releases_of_another() -> None:
    """The command of a fix takes the first release that has it: that must not be one that is reported, too."""
    for thread in threads.load():
        for package, range_ in ((name, range_) for way in thread.fix[:1] for name, range_ in way.items()):
            for other in threads.load():
                bad = other.affected.get(package)
                if bad and other.package == package and len(other.affected) == 1 and not other.words:
                    inside = [release for release in versions.near(range_, bad) if versions.allows(range_, release)]
                    assert not all(versions.allows(bad, release) for release in inside), (thread, other)
