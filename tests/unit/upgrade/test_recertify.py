"""Moving a stack on: green replaces the old in one step; whatever else happens, all stays as it was."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from builder.base import tomlfile
from builder.certify import certificate, certify, hostenv
from builder.image import render, target
from builder.intent.advisory import Advisory
from builder.intent.platform import ARM64
from builder.lock import lockfile
from builder.trajectory import record
from builder.upgrade import aside
from tests.commands import spawn
from tests.conftest import LIBRARY, TINY, Small, make_wheel, runner
from tests.unit.conftest import Command

pytestmark = pytest.mark.engine  # each of them installs two environments and runs them

SUITE = """\
import importlib.metadata as installed
versions = {name: installed.version(name) for name in ("tiny-lib", "extra") if any(
    (entry.metadata["Name"] or "") == name for entry in installed.distributions())}
say("start", probes=request["probes"] or ["alpha", "beta"], python=sys.version.split()[0])
for probe in request["probes"] or ["alpha", "beta"]:
    PROBE
say("finish")
"""
LOSS = {"name": "loss", "unit": "", "bound": {"at_most": 1.0}, "why": "", "headline": True}


def measured(value: float) -> list[dict[str, Any]]:
    return [{**LOSS, "value": value, "ok": True}]


class Moving:
    """The small project, certified, and the releases that it can move to."""

    def __init__(self, small: Small, command: Command) -> None:
        self.small, self.command = small, command
        for version in ("1.0", "2.0", "3.0", "4.0"):
            needs = {"3.0": ["extra>=1"], "4.0": ["missing>=1"]}.get(version, [])
            make_wheel(small.wheelhouse, "tiny-lib", version, {"tiny_lib.py": LIBRARY}, needs)
        make_wheel(small.wheelhouse, "extra", "1.0", {"extra.py": ""})
        (small.root / "advisories").mkdir()
        assert command(small.root, "lock", TINY).code == 0
        self.suite("end(probe)")
        small.render()
        assert command(small.root, "certify", TINY, "--engine", "host").code == 0

    def suite(self, probe: str) -> None:
        bounds = [LOSS] if "loss" in probe else []
        (self.small.project.smoke / "__main__.py").write_text(runner(*bounds) + SUITE.replace("PROBE", probe))

    def recertify(self, *upgrade: str, code: int = 0) -> Any:
        options = [word for package in upgrade for word in ("--upgrade", package)]
        answer = self.command(self.small.root, "recertify", TINY, "--engine", "host", "--json", *options)
        assert answer.code == code, answer.out + answer.err
        return answer.json

    def committed(self) -> dict[str, bytes]:
        """Every file that git would see, but the suite and the wheels."""
        return {
            str(path.relative_to(self.small.root)): path.read_bytes()
            for folder in ("lockfiles", "images", "docs", "README.md", "advisories")
            for path in [self.small.root / folder, *(self.small.root / folder).rglob("*")]
            if path.is_file()
        }

    def whole(self) -> str:
        """The version that the stack is at; stack.toml, lock and certificate all have to speak of it."""
        lock = self.small.lock
        assert lock.intent == lockfile.intent(lock.stack)
        statement = certificate.read(certificate.path(self.small.project, TINY, "cpu", "host"))
        assert statement.resource("lock").digest == certificate.bare(lock.digest)
        assert lock.stack.requires == [f"tiny-lib=={lock.versions['tiny-lib']}"]
        return lock.versions["tiny-lib"]


@pytest.fixture
def moving(wheels: Small, command: Command) -> Moving:
    return Moving(wheels, command)


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


KILL = "os.kill(os.getpid(), signal.SIGKILL)"
MOMENTS = {
    "before the exchange": ("1.0", f"aside._exchange = lambda *_: {KILL}"),
    "after the exchange": ("2.0", f"real = aside._exchange; aside._exchange = lambda *a: (real(*a), {KILL})"),
    "before rendering": ("2.0", f"aside._move_state = lambda *_: {KILL}"),
    "while the suite runs": ("1.0", f"from builder.certify import certify; certify.examine = lambda *_, **__: {KILL}"),
    "while it is copied": ("1.0", f"aside._flush = lambda *_: {KILL}"),
}  # fmt: skip


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_moment_the_stack_is_the_old_or_the_new_one_whole(moving: Moving, moment: str) -> None:
    expected, fault = MOMENTS[moment]
    argv = ["vetted", "recertify", TINY, "--engine", "host", "--upgrade", "tiny-lib==2.0"]
    imports = "import os, signal, sys; from builder import cli; from builder.upgrade import aside"
    code = f"{imports}; sys.argv = {argv!r}; {fault}; cli.main()"
    before = moving.committed()
    # What the fixture keeps from this machine's own libraries, a process of its own would look for.
    nothing = "from builder.lock import debian; debian.LIBRARIES = {}; "
    with spawn(["-c", nothing + code], moving.small.root) as child:
        _, err = child.communicate()
    assert child.returncode == -signal.SIGKILL, err
    assert moving.whole() == expected
    if expected == "1.0":
        assert moving.committed() == before
    # The next one finishes what was begun, or does it all.
    assert moving.recertify("tiny-lib==2.0")["outcome"] == ("green" if expected == "1.0" else "nothing")
    assert moving.whole() == "2.0"
    assert moving.command(moving.small.root, "render", "--check").code == 0


def test_what_somebody_edits_meanwhile_is_not_lost(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    run = certify.examine

    def edits(*arguments: Any, **options: Any) -> certificate.Statement:
        moving.small.edit("stack.toml", "it greets nobody", "it greets no one")
        return run(*arguments, **options)

    monkeypatch.setattr(certify, "examine", edits)
    answer = moving.recertify("tiny-lib==2.0", code=1)
    assert "was changed while the candidate was tried" in answer["error"]["what"]
    assert "it greets no one" in moving.small.file("stack.toml").read_text()
    assert moving.small.lock.versions == {"tiny-lib": "1.0"}


def test_a_copy_of_a_stack_makes_the_image_that_the_stack_itself_would(small: Small, tmp_path: Path) -> None:
    copy = aside.make(small.project, TINY, tmp_path / "aside")
    text = small.project.dockerfile(TINY).read_text()
    assert target.inputs_of(copy, lockfile.load(copy, TINY), text) == small.inputs


def test_the_dockerfile_for_another_platform_is_rendered_too(small: Small) -> None:
    small.edit("stack.toml", 'debian = "bookworm"', 'debian = "bookworm"\nplatforms = ["amd64", "arm64"]')
    for file in ("requirements.txt", "debian.txt"):
        shutil.copy(small.file(file), small.file(ARM64.file(file)))
    note = aside._note(small.project, TINY)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.touch()
    assert aside.finish(small.project, TINY, small.scratch())
    assert [render.difference(small.project, lock) for lock in lockfile.load_all(small.project, TINY)] == ["", ""]


def test_folders_that_cannot_be_exchanged_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(OSError, match="No such file"):
        aside._exchange(tmp_path / "one", tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


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


TRAIN = """\
import importlib.metadata, json, random, sys
python = sys.argv[sys.argv.index("--python") + 1] if "--python" in sys.argv else ""
if python:
    import os
    os.execv(python, [python, __file__])
request = json.loads(sys.stdin.readline())
shift = 1 if importlib.metadata.version("tiny-lib") == "3.0" else 0
print(json.dumps({"event": "start", "python": "3.11.2"}))
for seed in range(request["first"], request["first"] + request["seeds"]):
    draw = random.Random(seed)
    numbers = {"reward": [draw.random() + shift for _ in range(request["steps"])]}
    print(json.dumps({"event": "seed", "seed": seed, "numbers": numbers}))
print(json.dumps({"event": "finish"}))
"""


def test_an_upgrade_that_trains_differently_is_not_taken_over(moving: Moving) -> None:
    smoke = moving.small.project.smoke
    for file in (*record.TASK, "trajectories/__init__.py", "trajectories/__main__.py", "kit/__init__.py"):
        (smoke / file).parent.mkdir(exist_ok=True)
        (smoke / file).write_text(TRAIN if file.endswith("__main__.py") else "")
    moving.command(moving.small.root, "certify", TINY, "--engine", "host")
    told = moving.command(
        moving.small.root, "recertify", TINY, "--engine", "host", "--trajectories", "--upgrade", "nope"
    )
    assert told.code == 3
    argv = ["trajectories", TINY, "--engine", "host", "--seeds", "10", "--steps", "20"]
    assert moving.command(moving.small.root, *argv).code == 0
    argv = ["recertify", TINY, "--engine", "host", "--trajectories", "--upgrade"]
    same = moving.command(moving.small.root, *argv, "tiny-lib==2.0")
    assert same.code == 0, same.out + same.err
    assert "the training is the same, to the last bit, in 10 of 10 seeds" in same.out
    (kept,) = record.of_stack(moving.small.project, TINY)
    assert (moving.whole(), kept.lock) == ("2.0", moving.small.lock.digest)
    other = moving.command(moving.small.root, *argv, "tiny-lib==3.0")
    assert other.code == 1
    assert "the training changes: reward leaves the band" in other.out
    assert "passes, but trains differently; everything stays as it was" in other.out
    assert "picture: .vetted/trajectories/" in other.out
    assert moving.whole() == "2.0" and record.of_stack(moving.small.project, TINY) == [kept]
    assert "## Training" in (moving.small.project.state / "recertify" / f"{TINY}.md").read_text()
