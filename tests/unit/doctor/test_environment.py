"""What is installed: read from folders, virtual environments and interpreters, whole or broken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from doctor.answer import commands, diagnose
from doctor.answer.shell import Shell
from doctor.case import Case
from doctor.read import environment, files, pythons
from doctor.read.files import UnreadableError
from tests.unit.doctor.kit import install, of


def test_what_is_installed_is_read_from_its_metadata_up_to_the_description(tmp_path: Path) -> None:
    install(tmp_path, "Foo.Bar", "1.0", ["baz>=2"], python=">=3.9")
    result = environment.of_folders("x", [tmp_path]).packages["foo-bar"]
    assert (result.version, result.requires, result.requires_python) == ("1.0", ("baz>=2",), ">=3.9")


def test_the_first_folder_wins_as_it_does_for_python(tmp_path: Path) -> None:
    install(tmp_path / "one", "trl", "1.0.0")
    install(tmp_path / "two", "trl", "0.14.0")
    result = environment.of_folders("x", [tmp_path / "one", tmp_path / "two", tmp_path / "one", tmp_path / "none"])
    assert result.version("trl") == "1.0.0"
    assert result.complete
    assert len(result.folders) == 2


def test_a_virtual_environment_is_read_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.4\ninclude-system-site-packages = false\n")
    install(tmp_path / "lib" / "python3.12" / "site-packages", "trl", "0.14.0")
    for named in (tmp_path, tmp_path / "bin" / "python3"):
        result = pythons.of_path(str(named))
        assert (result.version("trl"), result.python) == ("0.14.0", "3.12.4")
        assert result.executable == str(tmp_path / "bin" / "python3")
    # Its folder alone names no Python that may be run, and the commands are for this one all the same.
    alone = pythons.of_path(str(tmp_path / "lib" / "python3.12" / "site-packages"))
    assert (alone.version("trl"), alone.executable) == ("0.14.0", None)
    assert alone.command_python == str(tmp_path / "bin" / "python3")
    for command in ("uv pip install 'transformers<4.52'", "uv pip uninstall trl"):
        assert f"--python {alone.command_python}" in commands.written(
            command, Case(alone), Shell("uv", "vetted doctor")
        )


def test_an_interpreter_is_asked_with_its_site_switched_off(tmp_path: Path) -> None:
    result = pythons.of_path(sys.executable)
    assert result.version("pytest") is not None
    with pytest.raises(UnreadableError, match="does not answer like a Python"):
        pythons.of_path("/bin/false")
    with pytest.raises(UnreadableError, match="does not exist"):
        pythons.of_path(str(tmp_path / "bin" / "no"))
    with pytest.raises(UnreadableError, match="no Python and nothing installed"):
        pythons.of_path(str(tmp_path))


def test_what_an_interrupted_installation_left_is_said(tmp_path: Path) -> None:
    (tmp_path / "~orch").mkdir()
    (tmp_path / "empty-1.0.dist-info").mkdir()
    install(tmp_path, "trl", "0.14.0")
    (tmp_path / "trl-0.15.2.dist-info").mkdir()
    (tmp_path / "trl-0.15.2.dist-info" / "METADATA").write_text("Name: trl\nVersion: 0.15.2\n\n")
    findings = [finding for finding in diagnose.findings(of(tmp_path)) if finding.rule == "half-installed"]
    assert [finding.confidence for finding in findings] == ["likely", "possible", "possible"]


def test_a_folder_that_cannot_be_listed_is_an_error_of_the_user_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names(folder: Path) -> tuple[list[str], bool]:
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr(files, "names", names)
    with pytest.raises(UnreadableError, match="Permission denied"):
        pythons.of_path(str(tmp_path))
