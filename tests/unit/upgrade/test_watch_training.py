"""A watch on a stack with golden trajectories: what trains differently waits for a person."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from builder.trajectory import record
from tests.conftest import TINY, Small
from tests.unit.conftest import Command
from tests.unit.upgrade.test_watch import BRANCH, Watch

pytestmark = pytest.mark.engine  # each of them installs two environments and runs them

# In place of smoke/trajectories/__main__.py: random curves, with or without a shift by the release that is installed.
PROGRAM = """\
import importlib.metadata as installed, json, os, random, sys
if "--python" in sys.argv:
    python = sys.argv[sys.argv.index("--python") + 1]
    os.execv(python, [python, __file__])
request = json.loads(sys.stdin.readline())
new = installed.version("tiny-lib") == "2.0"
def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)
say("start", python="3.11.2")
for seed in range(request["first"], request["first"] + request["seeds"]):
    draw = random.Random(f"{new} {seed}")
    curve = [step / 20 + draw.gauss(0, 0.1) + SHIFT * new for step in range(request["steps"])]
    say("seed", seed=seed, numbers={"reward": curve, "loss": curve[::-1]})
say("finish")
"""
Make = Callable[[float], Watch]


@pytest.fixture
def trained(wheels: Small, command: Command) -> Make:
    """A watched project whose golden trajectories are recorded; tiny-lib 2.0 shifts every reward by so much."""

    def make(shift: float) -> Watch:
        watch = Watch(wheels, command)
        for file in record.TASK:
            path = wheels.project.smoke / file
            path.parent.mkdir(exist_ok=True)
            path.write_text("# the task\n")
        (wheels.project.smoke / "trajectories" / "__main__.py").write_text(PROGRAM.replace("SHIFT", str(shift)))
        options = ("--engine", "host", "--seeds", "10", "--steps", "20")
        assert command(wheels.root, "certify", TINY, "--engine", "host").code == 0
        assert command(wheels.root, "trajectories", TINY, *options).code == 0
        watch.commit()
        return watch

    return make


def test_what_trains_the_same_moves_with_its_record(trained: Make) -> None:
    watching = trained(0.0)
    answer = watching.watch()
    assert (answer["trials"], answer["good"]) == (["green"], True)
    assert answer["training"][0]["good"] is True
    verdict = watching.on_branch(f"watch/{TINY}/verdict.md")
    assert "**it may move.** The suite passed, and no number became worse. The training does not change." in verdict
    assert "### Training" in verdict and "within the band" in verdict
    assert f"A picture of both: watch/{TINY}/trial-1/training.svg" in verdict
    assert watching.on_branch(f"watch/{TINY}/trial-1/training.svg").startswith("<svg ")
    lock = watching.on_branch(f"lockfiles/{TINY}/trajectories/cpu-host.json").partition('"lock": "')[2][:71]
    assert lock != watching.small.lock.digest and f"and is {lock}." in verdict


def test_what_trains_differently_waits_for_a_person(trained: Make) -> None:
    watching = trained(0.5)
    answer = watching.watch(code=1)
    assert (answer["trials"], answer["outcome"], answer["good"]) == (["strays"], "strays", False)
    assert answer["training"][0]["good"] is False
    assert '"tiny-lib==1.0", "holder==1.0"' in watching.on_branch(f"lockfiles/{TINY}/stack.toml")
    verdict = watching.on_branch(f"watch/{TINY}/verdict.md")
    assert verdict.startswith(f"# {TINY}: passes, but trains differently\n\nVerdict of ")
    assert "**it stays.**" in verdict and "reward leaves the band" in verdict
    assert "**A person decides:**" in verdict
    # What it says moves the stack all the same.
    (line,) = [line.strip() for line in verdict.splitlines() if line.startswith("    vetted recertify")]
    words = line.split()[1:]
    assert words == ["recertify", TINY, "--upgrade", "holder==2.0", "--upgrade", "tiny-lib==2.0"]
    assert watching.command(watching.small.root, *words, "--engine", "host").code == 0
    assert watching.small.lock.versions["tiny-lib"] == "2.0"


def test_without_a_record_nothing_is_trained_and_it_is_said(wheels: Small, command: Command) -> None:
    watching = Watch(wheels, command)
    answer = watching.watch()
    assert (answer["trials"], answer["training"]) == (["green"], [None])
    assert "The training was not compared." in watching.on_branch(f"watch/{TINY}/verdict.md")


def test_a_new_record_is_a_reason_to_try_again(trained: Make) -> None:
    watching = trained(0.0)
    (file,) = record.folder(watching.small.project, TINY).glob("*.json")
    kept = file.read_text()
    file.unlink()
    watching.commit()
    assert watching.watch()["training"] == [None]
    assert watching.watch()["unchanged_since"]
    file.write_text(kept)
    watching.commit()
    again = watching.watch()
    assert (again["unchanged_since"], again["training"][0]["good"]) == ("", True)
    assert watching.git("rev-list", "--count", f"main..{BRANCH}") == "1"
