"""Which files a bundle carries: those that fit the host's Python, and the verifier's own."""

from __future__ import annotations

import shutil

import pytest

from builder.base import errors
from builder.bundle import selection
from builder.lock import index
from tests.conftest import PYTHON, Small

OTHER_PYTHON = "3.12" if PYTHON != "3.12" else "3.13"


def test_the_files_for_another_python_are_those_that_fit_it(wheels: Small) -> None:
    """Of the same version, and what they are is written down in the bundle."""
    lock = wheels.lock
    wheel = next(wheels.wheelhouse.glob("*.whl"))
    digest = OTHER_PYTHON.replace(".", "")
    other = wheels.wheelhouse / f"tiny_lib-1.0-cp{digest}-cp{digest}-manylinux_2_17_x86_64.whl"
    shutil.copyfile(wheel, other)
    with other.open("ab") as file:
        file.write(b"another file")
    stack = lock.stack.model_copy(update={"python": OTHER_PYTHON})
    (file_,) = selection.locked(wheels.project, lock, stack, wheels.scratch(), lock.python)
    # The locked one fits as well, so it is taken; without it, the other.
    assert file_.sha256 == lock.python[0].sha256
    wheel.unlink()
    (file_,) = selection.locked(wheels.project, lock, stack, wheels.scratch(), lock.python)
    assert (file_.filename, file_.version) == (other.name, "1.0")


def test_a_python_for_which_there_is_no_file_names_the_way_on(wheels: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise errors.BadInputError("no file fits", next_step="vetted lock")

    monkeypatch.setattr(index, "offers", none)
    lock = wheels.lock
    other = lock.stack.model_copy(update={"python": OTHER_PYTHON})
    for stack, next_step in ((lock.stack, "vetted lock"), (other, f"install python{PYTHON} on the host")):
        with pytest.raises(errors.BadInputError, match="no file fits") as caught:
            selection.locked(wheels.project, lock, stack, wheels.scratch(), lock.python)
        assert next_step in caught.value.next_step


def test_the_verifiers_own_packages_are_those_of_the_tools_lock() -> None:
    pins = selection.tool_pins(PYTHON)
    assert {"pydantic", "pydantic-core", "typer", "uv", "unidiff"} <= pins.keys()
    assert not {"pytest", "mypy", "ruff", "nox", "colorama"} & pins.keys()
    assert all(pin.hashes for pin in pins.values())
