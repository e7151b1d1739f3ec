"""What is kept of a log or an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.read import symptoms
from doctor.read.files import UnreadableError
from tests.unit.doctor.kit import reported


def test_a_log_is_cut_to_what_speaks(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    noise = "".join(f"{{'loss': 0.{number}}}\n" for number in range(5000))
    log.write_text(f"{noise}RuntimeError: operator torchvision::nms does not exist\n{noise}")
    lines = symptoms.read(str(log)).splitlines()
    assert "RuntimeError: operator torchvision::nms does not exist" in lines
    assert len(lines) < 200
    with pytest.raises(UnreadableError, match="No such file"):
        symptoms.read(str(tmp_path / "none"))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_code_of_a_frame_stays_with_it(tmp_path: Path, end: str) -> None:
    log = tmp_path / "run.log"
    noise = [f"step {number}" for number in range(500)]
    lines = ['  File "/x/site-packages/flash_attn/ops.py", line 3, in f', "    from torch.library import wrap_triton"]
    log.write_bytes(end.join([*noise, *lines, "    ^^^^", *noise]).encode())
    assert "\n".join(lines) in symptoms.read(str(log))


@pytest.mark.parametrize(
    ("text", "models"),
    [
        ("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)", ["NVIDIA H100 80GB HBM3"]),
        ("| 0 Tesla V100-SXM2-32GB Off |\n| 1 Tesla V100-SXM2-32GB Off |", ["Tesla V100-SXM2-32GB"]),
        ("Found GPU0 NVIDIA GeForce GTX 1080 Ti which is of", ["NVIDIA GeForce GTX 1080 Ti"]),
        ("NVIDIA GeForce RTX 5090 with CUDA capability sm_120", ["NVIDIA GeForce RTX 5090"]),
        ("NVIDIA RTX PRO 6000 and NVIDIA GB10", ["NVIDIA RTX PRO 6000", "NVIDIA GB10"]),
        ("NVIDIA-SMI 580.95  Driver Version: 580.95  CUDA Version: 13.0", []),
        ("The NVIDIA driver on your system is too old; see NVIDIA CUDA 12.4 and NVIDIA NCCL 2.28", []),
    ],
)
def test_a_log_names_models_of_gpus(text: str, models: list[str]) -> None:
    assert symptoms.gpu_models(text) == models


PIP = """\
Collecting flash-attn
  Downloading flash_attn-2.8.3.tar.gz (8.4 MB)
  Getting requirements to build wheel: started
  error: subprocess-exited-with-error
  × Getting requirements to build wheel did not run successfully.
      ModuleNotFoundError: No module named 'torch'
      [end of output]
"""


@pytest.mark.parametrize("before", [0, 500])
def test_the_last_lines_keep_their_order(tmp_path: Path, before: int) -> None:
    log = tmp_path / "pip.log"
    log.write_text("".join(f"step {number}\n" for number in range(before)) + PIP)
    assert symptoms.read(str(log)).endswith(PIP.rstrip())


def test_an_error_that_came_early_stays_before_the_last_lines_and_is_said_once(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    noise = [f"step {number}" for number in range(300)]
    errors = ["RuntimeError: CUDA error 700", "RuntimeError: CUDA error 710"]
    log.write_text("\n".join([errors[0], *noise, *errors, "the end"]))
    lines = symptoms.read(str(log)).splitlines()
    assert lines[0] == errors[0]
    assert lines[-3:] == ["step 299", errors[1], "the end"]  # another number is another error
    assert lines.count(errors[0]) == 1


def test_no_line_is_lost_where_a_log_is_read_in_two_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symptoms, "CHUNK", 16)
    log = tmp_path / "run.log"
    log.write_text("first line\nValueError: x\nsecond line\nthird\n")
    assert symptoms.read(str(log)) == "first line\nValueError: x\nsecond line\nthird"


def test_a_word_longer_than_any_name_is_cut_so_that_no_pattern_runs_over_it() -> None:
    assert symptoms.plain("Ab" * 5000 + "Error: c") == "Ab" * 150 + ": c"


@pytest.mark.parametrize(
    ("typed", "raised"),
    [
        (
            "Accelerator.__init__() got an unexpected keyword argument use_seedable_sampler",
            "Accelerator.__init__() got an unexpected keyword argument 'use_seedable_sampler'",
        ),
        ("ImportError: cannot import name `Cache` from `a.b`", "ImportError: cannot import name 'Cache' from 'a.b'"),
        ("cannot import name Cache from transformers (/x)", "cannot import name 'Cache' from 'transformers' (/x)"),
        ("no module named triton.ops", "No module named 'triton.ops'"),
        ("cannot import name 'Cache' from transformers", "cannot import name 'Cache' from 'transformers'"),
        ("'Foo' object has no attribute bar", "'Foo' object has no attribute 'bar'"),
        ("module \u2018numpy\u2019 has no attribute \u2018product\u2019", "module 'numpy' has no attribute 'product'"),
        ("DataParallel object has no attribute save", "'DataParallel' object has no attribute 'save'"),
    ],
)
def test_a_retyped_error_gets_the_quotes_that_python_writes(typed: str, raised: str) -> None:
    assert symptoms.plain(typed) == raised
    assert symptoms.plain(raised) == raised


def test_a_bare_exception_is_a_failure() -> None:
    assert reported({}, "Exception: data did not match any variant").failed
    assert not reported({}, "an exception to the rule").failed


@pytest.mark.parametrize(
    "text",
    [
        "ImportError: cannot import name 'x' from partially initialized module 'trl.core' (most likely)",
        "it says unexpected keyword argument, and I do not know why",
        "AttributeError: 'X' object has no attribute 'y'. Did you mean: 'z'?",
        "No module named 'a.b'",
        "an object has no attribute here",
        "unexpected keyword argument when calling it",
        "no module named in my environment",
        "No module named foo-bar",
    ],
)
def test_other_words_stay(text: str) -> None:
    assert symptoms.plain(text) == text
