"""The C compiler that a host needs on a GPU: named when it is missing, and tried before a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base import errors
from builder.certify import compiler
from builder.lock import lockfile
from tests.conftest import TINY, Small


@pytest.mark.parametrize(
    ("gcc", "headers", "missing"),
    [
        ("exit 0", True, None),
        ("", True, "lacks gcc"),
        ("exit 0", False, "lacks python3.11-dev"),
        ("", False, "lacks gcc and python3"),
        ("echo 'fatal error: pyconfig.h' >&2; exit 1", True, "cannot compile a C module\nfatal error: pyconfig.h"),
    ],
)
def test_on_a_gpu_the_host_needs_what_triton_compiles_with(
    gcc: str, headers: bool, missing: str | None, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program, text in (("bin/gcc", gcc), ("env/bin/python", f"echo {tmp_path / 'include'}")):
        (tmp_path / program).parent.mkdir(parents=True)
        if text:
            (tmp_path / program).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / program).chmod(0o755)
    if headers:
        (tmp_path / "include").mkdir()
        (tmp_path / "include" / "Python.h").touch()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CC", raising=False)
    lock = lockfile.load(small.project, TINY)
    if missing is None:
        compiler.require(lock, tmp_path / "env")
    else:
        with pytest.raises(errors.MissingToolError, match=missing):
            compiler.require(lock, tmp_path / "env")


@pytest.mark.parametrize("chosen", ["nowhere-cc", "cc -m64"])
def test_a_chosen_compiler_that_triton_cannot_start_is_named(
    chosen: str, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", chosen)
    with pytest.raises(errors.MissingToolError, match=f"CC is '{chosen}'") as caught:
        compiler.require(small.lock, tmp_path)
    assert "unset CC" in caught.value.next_step
