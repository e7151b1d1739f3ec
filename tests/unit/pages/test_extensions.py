"""The benchmark of extensions: how an answer is judged, and how the record stands in the documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import extensions as benchmark
from benchmarks.extensions import Answer
from builder.base import errors
from builder.lock import antique
from builder.lock.antique import Behind
from builder.lock.extension import Conflict
from builder.pages import evidence, extensions
from tests.conftest import TINY, Small

PARENT = {"pillow": "13.0.0", "numpy": "2.0"}
TAKEN = {"own": {"extra": "1.5"}, "behind": [], "left_out": []}
PIN = ["pillow 13.0.0"]


def refusal(what: str, code: int = 3) -> Answer:
    return Answer(code, {"error": {"what": what, "exit_code": code}}, "", 1.0)


def behind(pins: list[str], *, far: bool = False) -> Answer:
    told = {"name": "extra", "version": "1.5", "newest": "1.6", "far": far, "in_the_way": pins}
    return Answer(0, {**TAKEN, "behind": [told]}, "", 1.0)


OLD = "only old releases fit tiny\nextra 0.1, and not 1.6: {} is in the way\n  extra: Because extra>=1: it"


@pytest.mark.parametrize(
    ("answer", "newest", "outcome", "pins"),
    [
        (Answer(0, TAKEN, "", 1.0), "1.5", "newest", []),
        (Answer(0, TAKEN, "", 1.0), "1.6", "wrong", []),  # nothing was said
        (Answer(0, TAKEN, "", 1.0), "", "wrong", []),  # pip knows no release
        (behind(PIN), "1.6", "behind", PIN),
        (behind([]), "1.6", "wrong", []),
        (behind(PIN, far=True), "1.6", "wrong", PIN),
        (refusal(OLD.format("numpy 2.0, pillow 13.0.0")), "1.6", "refused", ["numpy 2.0", "pillow 13.0.0"]),
        (refusal(OLD.format("pillow 12.0.0")), "1.6", "wrong", []),  # the parent has no such pin
        (refusal(OLD.format("Because a depends on b")), "1.6", "wrong", []),
        (refusal("tiny has no place for extra\n  in the way: pillow 13.0.0 of tiny\n  uv: it"), "1.6", "refused", PIN),
        (refusal("tiny has no place for extra\n  uv: Because"), "1.6", "wrong", []),
        (refusal("mine: own packages change what tiny was certified with\nextra brings x.pth"), "1.6", "refused", []),
        (refusal("the network did not answer", 5), "1.6", "wrong", []),
        (Answer(1, {}, "Traceback", 1.0), "1.6", "wrong", []),
    ],
)
def test_an_answer_is_judged_by_what_it_said(answer: Answer, newest: str, outcome: str, pins: list[str]) -> None:
    row = benchmark.judged(answer, "Extra[more]", newest, PARENT)
    assert (row["outcome"], row["pins"]) == (outcome, pins)


def test_the_old_release_and_the_newest_of_a_refusal_are_read() -> None:
    row = benchmark.judged(refusal(OLD.format("pillow 13.0.0")), "extra", "", PARENT)
    assert (row["version"], row["newest"]) == ("0.1", "1.6")


@pytest.mark.parametrize(("pins", "outcome"), [(("tiny-lib 1.0",), "refused"), ((), "wrong")])
def test_a_refusal_in_the_commands_own_words_is_wrong_when_it_names_no_pin(
    small: Small, pins: tuple[str, ...], outcome: str
) -> None:
    old = Behind("extra", "0.1", "1.6", True, Conflict(pins, "Because a depends on b"))
    with pytest.raises(errors.BadInputError) as caught:
        antique.refuse([old], small.lock)
    row = benchmark.judged(refusal(caught.value.what), "extra", "", small.lock.versions)
    assert (row["outcome"], row["version"], row["newest"]) == (outcome, "0.1", "1.6")


def test_a_reason_is_the_first_line_and_the_last() -> None:
    what = "bench-one: x.tar.gz cannot be built in the image\n  File x\nModuleNotFoundError: No module named 'torch'"
    row = benchmark.judged(refusal(what), "extra", "1.6", PARENT)
    assert row["reason"] == "x.tar.gz cannot be built in the image: ModuleNotFoundError: No module named 'torch'"


def test_what_is_left_out_is_in_the_row() -> None:
    gone = {"name": "triton", "required_by": ["extra"], "reason": "a GPU compiler"}
    row = benchmark.judged(Answer(0, {**TAKEN, "left_out": [gone]}, "", 1.0), "extra", "1.5", PARENT)
    assert (row["outcome"], row["reason"]) == ("newest", "it says that triton is left out")


def test_thirty_packages_of_four_projects_none_twice_and_none_of_the_stack() -> None:
    names = [each for listed in benchmark.PACKAGES.values() for each in listed]
    assert (len(names), len(benchmark.PACKAGES)) == (30, 4)
    assert len({*names, *benchmark.TRAPS}) == 30 + len(benchmark.TRAPS)


def row(package: str, outcome: str, **more: Any) -> dict[str, Any]:
    return {
        "package": package, "project": "verl", "outcome": outcome, "version": "1.5", "newest": "1.6", "days": 40,
        "pins": [], "reason": "", "seconds": 4.2, **more,
    }  # fmt: skip


def test_the_record_in_the_documents(small: Small) -> None:
    assert extensions.results(small.project) == "Not measured yet.\n"
    together: dict[str, Any] = {
        "packages": 2, "distributions": 5, "without": ["late"], "lock_s": 9.0, "build_s": 100.0, "certify_s": 90.0,
        "load": 0.5, "certified": True, "passed": 40, "layers_kept": True, "layer_bytes": 1_600_000,
        "files_bytes": 1_000_000, "bytecode_bytes": 600_000, "imports_s": {"nltk": {"with": 0.5, "without": 1.5}},
    }  # fmt: skip
    record = {
        "stack": TINY, "lock": small.lock.digest, "together": together,
        "packages": [row("one", "newest"), row("two", "behind", pins=PIN)],
        "traps": [row("three", "refused", version="", reason="it brings x.pth")],
    }  # fmt: skip
    path = evidence.store(small.project, "extensions", {**evidence.head("it"), **record}, small.scratch())
    text = extensions.results(small.project)
    assert "**2 packages**: 1 newest, 1 an earlier one, and it says so, 0 refused" in text
    assert "| `two` | verl | 1.5 | 1.6 | an earlier one (40 days) | `pillow 13.0.0` | 4 |" in text
    assert "| `three` | verl | – | 1.6 | refused (40 days) | it brings x.pth | 4 |" in text
    assert "**1.60**, 0.60 of it bytecode (at most 1.5: missed)" in text
    assert "An import takes without bytecode: `nltk` 1.5 s and not 0.5 s." in text
    assert "190 s (at most 180: missed), at a load of 0.5 before" in text
    assert "without `late`" in text and "an earlier lock" not in text
    document = json.loads(path.read_text())
    evidence.store(small.project, "extensions", {**document, "lock": "sha256:0", "together": None}, small.scratch())
    text = extensions.results(small.project)
    assert "an earlier lock" in text and "missed" not in text
