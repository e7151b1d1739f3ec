"""An upgrade that passes the suite and trains differently."""

from __future__ import annotations

import pytest

from builder.trajectory import record
from tests.conftest import TINY
from tests.unit.upgrade.moving import Moving

pytestmark = pytest.mark.engine  # it installs three environments and trains in them

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
