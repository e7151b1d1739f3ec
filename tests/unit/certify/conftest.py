"""A control of the small stack: `rude` with its wheels, and locked with each kind of twin."""

from __future__ import annotations

import pytest

from builder.certify import control
from tests.conftest import LIBRARY, PATCH, PYTHON, RUNNER, Small, make_wheel

NAME = "rude"
CONTROL = f"""\
title = "Tiny 1.0 greets nobody"
device = "cpu"
python = "{PYTHON}"
debian = "bookworm"
requires = ["tiny-lib==1.0"]

[expect]
fails = ["greeting"]
reason = "nobody"
twin = {{ tiny-lib = "2.0" }}
"""
BY_VERSION = 'twin = { tiny-lib = "2.0" }'
BY_PATCH = f'patch = "{PATCH}"'
# Asks two probes; the second is a true defect of both sides.
SUITE = (
    RUNNER
    + """\
import tiny_lib
probes = request["probes"] or ["greeting", "other"]
say("start", probes=probes, python="3.11.2")
for probe in probes:
    good = probe == "greeting" and tiny_lib.greeting == "somebody"
    reason = f"it greets {tiny_lib.greeting}" if probe == "greeting" else "something else"
    end(probe, "passed" if good else "failed", reason=None if good else reason)
say("finish")
"""
)


@pytest.fixture
def rude(wheels: Small) -> Small:
    """A project with a control whose wheels are all there."""
    make_wheel(wheels.wheelhouse, "tiny-lib", "1.0", {"tiny_lib.py": "greeting = 'nobody'\n"})
    make_wheel(wheels.wheelhouse, "tiny-lib", "2.0", {"tiny_lib.py": "greeting = 'somebody'\n"})
    write(wheels, CONTROL)
    (wheels.project.smoke / "__main__.py").write_text(SUITE)
    return wheels


def write(small: Small, text: str) -> None:
    folder = small.project.control_dir(NAME)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stack.toml").write_text(text)


@pytest.fixture
def locked(rude: Small) -> Small:
    assert control.make(rude.project, NAME, rude.scratch())
    return rude


@pytest.fixture
def patched(rude: Small) -> Small:
    """A control that a patch makes good, locked; the patch says `somebody` in the second line."""
    make_wheel(rude.wheelhouse, "tiny-lib", "1.0", {"tiny_lib.py": LIBRARY})
    write(rude, CONTROL.replace(BY_VERSION, BY_PATCH))
    assert control.make(rude.project, NAME, rude.scratch())
    return rude
