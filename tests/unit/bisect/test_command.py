"""Any command in place of a probe."""

from __future__ import annotations

from pathlib import Path

from builder.base import tomlfile
from builder.intent.advisory import Advisory
from tests.conftest import PYTHON
from tests.unit.bisect.conftest import BAD, GOOD, NAMES, Parts, names


def test_any_command_will_do_in_place_of_a_probe(parts: Parts) -> None:
    code = "import part_c, sys; sys.exit('RuntimeError: c' if part_c.version == '2.0' else 0)"
    answer = parts.command(
        parts.small.root, "bisect", "packages", "--good", "good.txt", "--bad", "bad.txt", "--python", PYTHON,
        "--json", "--", "python", "-c", code,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert names(answer.json["culprits"]) == ["part-c"]
    assert (answer.json["fault"], answer.json["reason"]) == ("RuntimeError", "RuntimeError: c")
    assert tomlfile.read(Advisory, Path(answer.json["advisory"]), "draft").probes == []


def test_a_command_may_leave_folders_deeper_than_python_can_follow(parts: Parts) -> None:
    """Python's own removal of the environment ends in a RecursionError, or leaves them behind."""
    parts.pins(parts.bad, {**dict.fromkeys(NAMES, GOOD), "part-c": BAD})
    code = (
        "import os, part_c, sys\n"
        "os.chdir(sys.prefix)\n"
        "for _ in range(1200): os.mkdir('d'); os.chdir('d')\n"
        "sys.exit('RuntimeError: c' if part_c.version == '2.0' else 0)"
    )
    answer = parts.command(
        parts.small.root, "bisect", "packages", "--good", "good.txt", "--bad", "bad.txt", "--python", PYTHON,
        "--json", "--", "python", "-c", code,
    )  # fmt: skip
    assert answer.code == 0, answer.out + answer.err
    assert names(answer.json["culprits"]) == ["part-c"]
    state = parts.small.project.state
    assert [*state.glob("host/*"), *state.glob("tmp/*")] == []


def test_a_command_that_hangs_or_cannot_say_is_an_outcome(parts: Parts) -> None:
    code = (
        "import part_c, part_d, sys, time\n"
        "if part_d.version == '2.0' and part_c.version != '2.0': sys.exit(125)\n"
        "if part_c.version == '2.0': time.sleep(60)"
    )
    answer = parts.command(
        parts.small.root, "bisect", "packages", "--good", "good.txt", "--bad", "bad.txt", "--python", PYTHON,
        "--time-limit", "1", "--json", "--", "python", "-c", code,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert (names(answer.json["culprits"]), answer.json["fault"]) == (["part-c"], "hang")
