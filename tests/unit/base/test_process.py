"""Other programs: none outlives the command, and what they print becomes the right error."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from builder.base import errors, process
from tests.commands import spawn

# A program that has a child in the background, and says which.
FAMILY = ["sh", "-c", "sleep 600 & echo $!; wait"]
PARENT = f"""\
from builder.base import process
with process.running({FAMILY!r}) as child:
    print(child.pid, child.stdout.readline().strip(), flush=True)
    child.wait()
"""


def alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def gone(*pids: int) -> bool:
    """Wait for processes to end; False when one goes on regardless."""
    for _ in range(1000):
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def test_a_killed_command_leaves_no_grandchild(tmp_path: Path) -> None:
    with spawn(["-c", PARENT], tmp_path) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        try:
            assert gone(*pids)
        finally:
            for pid in filter(alive, pids):
                os.kill(pid, signal.SIGKILL)


def test_leaving_the_block_ends_the_program_and_its_children() -> None:
    with process.running(FAMILY) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert alive(grandchild)
    assert child.returncode == -signal.SIGKILL
    assert gone(child.pid, grandchild)


def test_an_error_inside_the_block_ends_the_program_too() -> None:
    with pytest.raises(ZeroDivisionError), process.running(FAMILY) as child:
        raise ZeroDivisionError
    assert child.returncode == -signal.SIGKILL


def test_what_a_program_leaves_in_the_background_goes_with_it() -> None:
    result = process.run(["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"])
    assert result.returncode == 0
    assert gone(int(result.stdout))


def test_what_a_program_prints_is_kept_apart_and_whole() -> None:
    result = process.run(["sh", "-c", r"echo out; echo err >&2; printf '\377'; exit 7"])
    assert (result.returncode, result.stdout, result.stderr) == (7, "out\n\ufffd", "err\n")
    assert result.output == "out\n\ufffderr\n"


def test_the_environment_is_added_to_and_the_folder_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_KEPT", "kept")
    result = process.run(["sh", "-c", "echo $LC_KEPT $ADDED; pwd -P"], env={"ADDED": "added"}, cwd=tmp_path)
    assert result.stdout == f"kept added\n{tmp_path.resolve()}\n"


def test_a_program_reads_nothing_from_the_terminal() -> None:
    assert process.run(["cat"]).stdout == ""


def test_a_missing_program_is_a_missing_tool() -> None:
    with pytest.raises(errors.MissingToolError, match="no-such-program is not installed") as caught:
        process.run(["no-such-program"])
    assert caught.value.exit_code == 4
    assert "install" in caught.value.next_step


def test_a_program_that_does_not_answer_is_stopped() -> None:
    with pytest.raises(errors.VettedError, match="no answer within 0 seconds: sleep 600"):
        process.run(["sleep", "600"], timeout=0.05)


@pytest.mark.parametrize(
    ("script", "kind", "code"),
    [
        ("echo no such option >&2; exit 2", errors.VettedError, 1),
        ("echo all is well; kill -SEGV $$", errors.VettedError, 1),
        ("LC_ALL=C env echo x > /dev/full", errors.StorageError, 6),
        ("echo 'dns error: failed to lookup address' >&2; exit 1", errors.NetworkError, 5),
        ("echo 'mkdir: /x: Permission denied' >&2; exit 1", errors.StorageError, 6),
    ],
)
def test_a_program_that_fails_raises_the_error_that_fits(
    script: str, kind: type[errors.VettedError], code: int
) -> None:
    with pytest.raises(errors.VettedError, match=r"^the step") as caught:
        process.check("the step", ["sh", "-c", script], next_step="try again")
    assert type(caught.value) is kind
    assert caught.value.exit_code == code


def test_a_program_that_succeeds_raises_nothing_whatever_it_prints() -> None:
    result = process.check("the step", ["echo", "No space left on device"])
    assert result.stdout == "No space left on device\n"
