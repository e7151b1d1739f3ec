"""Errors: which one a tool's words or the system's refusal amounts to, and what a person reads."""

from __future__ import annotations

import errno
import os
import tomllib
from pathlib import Path

import pytest

from builder.base import errors
from builder.publish import refusal
from builder.publish.reference import parse_repository

# As uv prints it.
MISMATCH = """\
  × Failed to download `tiny-lib==1.0`
  ╰─▶ Hash mismatch for `tiny-lib==1.0`

      Expected:
        sha256:aaaa

      Computed:
        sha256:bbbb
"""


def test_a_hash_mismatch_names_package_expected_and_got() -> None:
    error = errors.from_tool("installing", MISMATCH)
    assert (type(error), error.exit_code) == (errors.NetworkError, 5)
    assert error.what.splitlines() == [
        "tiny-lib==1.0: the downloaded file is not the locked one",
        "expected sha256:aaaa",
        "got      sha256:bbbb",
    ]
    assert "vetted lock --check" in error.next_step


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [
        ("error: No space left on device (os error 28)", errors.StorageError, 6),
        ("npm ERR! ENOSPC", errors.StorageError, 6),
        ("Disk quota exceeded", errors.StorageError, 6),
        ("error: Failed to fetch: `x`\n  Caused by: error sending request", errors.NetworkError, 5),
        ("Temporary failure in name resolution", errors.NetworkError, 5),
        ("E: Unable to connect to mirror.test:80: Connection refused", errors.NetworkError, 5),
        ("error: Permission denied (os error 13)", errors.StorageError, 6),
        ("cp: Read-only file system", errors.StorageError, 6),
        ("chown: Operation not permitted", errors.StorageError, 6),
        ("Failed to fetch x: No space left on device", errors.StorageError, 6),
        ("error: something else", errors.VettedError, 1),
        ("", errors.VettedError, 1),
    ],
)
def test_what_a_tool_said_decides_the_error(text: str, kind: type[errors.VettedError], code: int) -> None:
    error = errors.from_tool("the step", text, next_step="try again")
    assert (type(error), error.exit_code) == (kind, code)
    assert error.what.startswith("the step")
    if kind is errors.VettedError:
        assert error.next_step == "try again"


# What the tools themselves printed when each fault was provoked.
PROVOKED = tomllib.loads(Path(__file__).with_name("provoked.toml").read_text())


@pytest.mark.parametrize("provoked", PROVOKED)
def test_what_a_real_tool_printed_is_called_by_its_name(provoked: str) -> None:
    output = PROVOKED[provoked]
    error = errors.from_tool("the step", output["printed"])
    assert type(error).__name__ == output["kind"]
    assert output["says"] in error.what
    assert "network" not in str(error)
    assert output["next"] in error.next_step


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/x"), errors.StorageError, "/x does not exist"),
        (
            FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)),
            errors.StorageError,
            "the current folder no longer exists",
        ),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), errors.NetworkError, "the network did not answer"),
        (TimeoutError("timed out"), errors.NetworkError, "the network did not answer: timed out"),
        (OSError(errno.ENETUNREACH, "unreachable"), errors.NetworkError, "the network did not answer"),
    ],
)
def test_missing_files_and_networks_are_no_matter_of_permission(
    error: OSError, kind: type[errors.VettedError], text: str
) -> None:
    explained = errors.from_os(error)
    assert type(explained) is kind
    assert text in explained.what
    assert "another user" not in str(explained)


def test_of_a_long_output_the_end_is_shown() -> None:
    what = errors.from_tool("the step", "\n".join(f"line {number}" for number in range(100))).what
    assert what.splitlines() == ["the step failed", *(f"line {number}" for number in range(88, 100))]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.ENOSPC, "no space left on the disk"),
        (errno.EDQUOT, "no space left on the disk"),
        (errno.EACCES, "Permission denied"),
        (errno.EPERM, "Operation not permitted"),
        (errno.EROFS, "Read-only file system"),
        (errno.ELOOP, "Too many levels"),
    ],
)
def test_what_the_system_refused_is_a_matter_of_storage(number: int, text: str) -> None:
    error = errors.from_os(OSError(number, os.strerror(number), "/some/file"))
    assert (type(error), error.exit_code) == (errors.StorageError, 6)
    assert error.what.startswith("/some/file: ")
    assert text in error.what


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_what_may_not_be_written_comes_with_the_way_to_look_at_it(number: int) -> None:
    error = errors.from_os(OSError(number, os.strerror(number), "/some/file"))
    assert error.next_step == "ls -ld /some/file"
    assert "read-only" in error.cause


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ELOOP])
def test_an_error_that_names_no_file_asks_for_no_look_at_one(number: int) -> None:
    error = errors.from_os(OSError(number, os.strerror(number)))
    assert error.what == os.strerror(number)
    assert error.next_step == "id; ls -la . .vetted"
    assert "a file" not in f"{error.what} {error.next_step}"


def test_a_path_with_a_blank_is_one_word_of_the_next_command() -> None:
    error = errors.from_os(OSError(errno.EACCES, os.strerror(errno.EACCES), "/my files/x"))
    assert error.next_step == "ls -ld '/my files/x'"


def test_a_full_disk_is_told_with_what_to_do() -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        Path("/dev/full").write_text("x")
    error = errors.from_os(caught.value)
    assert "no space left on the disk; existing files are unchanged" in error.what
    assert "VETTED_STATE" in error.next_step


def test_a_message_says_what_the_usual_cause_and_the_next_step() -> None:
    assert str(errors.VettedError("what", cause="cause", next_step="step")) == "what\nusual cause: cause\nnext: step"
    assert str(errors.VettedError("what")) == "what"


def test_every_kind_of_error_has_an_exit_code_of_its_own() -> None:
    kinds = [
        errors.VettedError, errors.BadInputError, errors.MissingToolError, errors.NetworkError, errors.StorageError,
    ]  # fmt: skip
    assert [kind.exit_code for kind in kinds] == [1, 3, 4, 5, 6]


def test_a_full_disk_of_this_machine_is_not_the_registrys() -> None:
    """What oras printed when it wrote to a full tmpfs, and when the registry did."""
    place = parse_repository("127.0.0.1:5987/a/b", insecure=False)
    local = refusal.explain(place, "Error: write small/x: no space left on device")
    assert (type(local), local.exit_code) == (errors.StorageError, 6)
    assert "VETTED_STATE" in local.next_step
    remote = refusal.explain(
        place,
        "Error response from registry: unknown: unknown error: write /docker/registry/v2/repositories/a/b/_uploads/"
        "645b230e-2605-4b7f-8ab8-8f6d0d2d932d/data: no space left on device",
    )
    assert (type(remote), remote.exit_code) == (errors.NetworkError, 5)
    assert "the registry's disk is full" in remote.what


def test_oras_without_a_home_is_not_the_registrys_answer() -> None:
    place = parse_repository("127.0.0.1:5987/a/b", insecure=False)
    error = refusal.explain(place, "Error: failed to get user home directory: $HOME is not defined")
    assert "HOME is not set" in error.what
    assert "registry answers" not in error.what


@pytest.mark.parametrize("there", ["folder", "loop"])
def test_what_stands_in_the_way_is_named_as_it_was_typed(tmp_path: Path, there: str) -> None:
    """Files are written aside and renamed: nobody typed the name of the first."""
    aside, target = tmp_path / "file.partial", tmp_path / "file"
    aside.touch()
    if there == "folder":
        target.mkdir()
    else:
        target.symlink_to(target)
    with pytest.raises(OSError, match=r"file") as caught:
        aside.replace(target if there == "folder" else target / "below")
    error = errors.from_os(caught.value)
    assert error.what.startswith(f"{target}")
    assert error.cause and error.next_step.startswith(f"ls -ld {target}")
