"""Moving a stack on: green replaces the old one; red leaves everything, and names the culprit."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base import tomlfile
from builder.certify import hostenv
from builder.image import render
from builder.intent.advisory import Advisory
from tests.conftest import LIBRARY, TINY, make_wheel
from tests.unit.upgrade.moving import Moving, measured

# Each of them installs two environments and runs them.
pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("other_debian")]


def test_green_replaces_stack_lock_certificate_and_dockerfile(moving: Moving) -> None:
    answer = moving.recertify("tiny-lib==2.0")
    assert (answer["outcome"], answer["red"], answer["report"]) == ("green", [], None)
    assert answer["difference"] == ["tiny-lib 1.0 → 2.0, +0.0 MB"]
    assert moving.whole() == "2.0"
    lock = moving.small.lock
    assert render.difference(moving.small.project, lock) == ""
    assert 'reason = "it greets nobody"' in moving.small.file("stack.toml").read_text()
    assert moving.command(moving.small.root, "render", "--check").code == 0
    assert moving.command(moving.small.root, "lock", "--check").code == 0
    again = moving.command(moving.small.root, "certify", TINY, "--engine", "host", "--json").json
    assert again["reused"] is True  # the environment that was certified is the project's own now
    own = hostenv.path(moving.small.project, lock).name
    assert {path.name for path in (moving.small.project.state / "host").iterdir()} == {own, f"{own}.seal"}
    assert not (moving.small.project.state / "aside" / TINY).exists()


def test_without_a_version_it_moves_as_far_as_the_ranges_allow(moving: Moving) -> None:
    answer = moving.recertify("tiny-lib")
    assert answer["outcome"] == "green"
    assert moving.whole() == "3.0"  # 4.0 needs what nobody has
    assert any(line.startswith("extra 1.0 added") for line in answer["difference"])


def test_several_packages_may_follow_one_option(moving: Moving) -> None:
    argv = ["recertify", TINY, "--engine", "host", "--upgrade", "tiny-lib==2.0", "nope"]
    answer = moving.command(moving.small.root, *argv)
    assert answer.code == 3
    assert "nope: no pin of tiny" in answer.err


def test_nothing_to_move_is_nothing_to_do(moving: Moving) -> None:
    before = moving.committed()
    assert moving.recertify()["outcome"] == "nothing"
    assert moving.committed() == before


def test_red_leaves_everything_and_names_the_culprit(moving: Moving) -> None:
    moving.suite(
        "bad = versions['tiny-lib'] == '3.0' and probe == 'beta'\n"
        "    end(probe, **({'outcome': 'failed', 'reason': 'ValueError: it broke'} if bad else {}))"
    )
    before = moving.committed()
    answer = moving.recertify("tiny-lib==3.0", code=1)
    assert (answer["outcome"], answer["red"]) == ("red", ["beta"])
    assert answer["culprits"] == [{"name": "tiny-lib", "good": "1.0", "bad": "3.0"}]
    assert moving.committed() == before
    assert moving.whole() == "1.0"
    text = Path(answer["report"]).read_text()
    assert "**beta** failed: ValueError: it broke" in text
    assert "- tiny-lib 1.0 → 3.0\n- extra 1.0 added, because they require it\n" in text
    assert "affected" in text and "extra 1.0 added, " in text
    drafted = tomlfile.read(Advisory, Path(answer["advisory"]), "draft")
    assert drafted.matches({"tiny-lib": "3.0"}) == "certain"
    assert Path(answer["reproducer"]).is_file()
    assert list((moving.small.project.state / "host").iterdir()) != []  # the old environment is there still


def test_what_cannot_be_resolved_is_said_in_uvs_words(moving: Moving) -> None:
    before = moving.committed()
    answer = moving.recertify("tiny-lib==4.0", code=1)
    assert answer["outcome"] == "unresolvable"
    assert "missing" in answer["said"]
    assert "cannot be resolved" in Path(answer["report"]).read_text()
    assert moving.committed() == before


def test_a_patch_that_no_longer_applies_is_said(moving: Moving) -> None:
    make_wheel(moving.small.wheelhouse, "tiny-lib", "2.0", {"tiny_lib.py": "nothing = 0\n"})
    before = moving.committed()
    answer = moving.recertify("tiny-lib==2.0", code=1)
    assert answer["outcome"] == "not built"
    assert "does not apply exactly" in answer["said"]
    assert moving.committed() == before


@pytest.mark.parametrize(
    ("probe", "what"),
    [
        (f"end(probe, measurements={measured(0.9)!r} if versions['tiny-lib'] == '2.0' else {measured(0.1)!r})", "loss"),
        ("end(probe, peak_memory_mib=900.0 if versions['tiny-lib'] == '2.0' else 100.0)", "peak memory"),
    ],
)
def test_a_number_that_became_worse_is_red_and_bisected(moving: Moving, probe: str, what: str) -> None:
    moving.suite(probe)
    assert moving.command(moving.small.root, "certify", TINY, "--engine", "host", "--force").code == 0
    before = moving.committed()
    answer = moving.recertify("tiny-lib==2.0", code=1)
    assert answer["outcome"] == "worse"
    assert len(answer["worse"]) >= 2 and all(what in line for line in answer["worse"])
    assert [package["name"] for package in answer["culprits"]] == ["tiny-lib"]
    assert "What became worse" in Path(answer["report"]).read_text()
    assert moving.committed() == before


@pytest.mark.parametrize(
    ("upgrade", "message"),
    [
        ("nope", "no pin of tiny"),
        ("tiny-lib>=2", "write one version, or none"),
        ("tiny-lib==", "is not a package to upgrade"),
    ],
)
def test_what_cannot_be_upgraded_ends_with_3(moving: Moving, upgrade: str, message: str) -> None:
    before = moving.committed()
    assert message in moving.recertify(upgrade, code=3)["error"]["what"]
    assert moving.committed() == before


def test_people_see_the_difference_the_results_and_the_new_lock(moving: Moving) -> None:
    answer = moving.command(moving.small.root, "recertify", TINY, "--engine", "host", "--upgrade", "tiny-lib==2.0")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("  tiny-lib 1.0 → 2.0")
    assert f"→ {moving.small.lock.digest}\n" in answer.out


def test_brackets_in_a_fix_are_text_and_not_markup(moving: Moving) -> None:
    """`[[override]]` is a key of stack.toml that a fix names; Rich would take it for markup."""
    make_wheel(moving.small.wheelhouse, "tiny-lib", "2.0", {"tiny_lib.py": LIBRARY}, ["nvidia-tiny"])
    make_wheel(moving.small.wheelhouse, "nvidia-tiny", "1.0", {"nvidia_tiny.py": ""})
    answer = moving.command(moving.small.root, "recertify", TINY, "--engine", "host", "--upgrade", "tiny-lib==2.0")
    assert answer.code == 1
    assert "\n  fix: leave them out with an [[override]]\n" in answer.out
