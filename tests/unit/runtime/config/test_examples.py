"""The examples: the check finds nothing in their configs; tests/engine does it with the options of the real TRL."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.config import look, source
from tests.conftest import ROOT

CONFIGS = sorted((ROOT / "examples").glob("*/*.yaml"))
CONFIGS = [path for path in CONFIGS if path.parent.name in ("arithmetic", "gsm8k")]


def copied(folder: str, target: Path) -> Path:
    """A folder of examples, with what its script makes."""
    here = target / folder
    shutil.copytree(
        ROOT / "examples" / folder, here, ignore=shutil.ignore_patterns("model", "train.jsonl", "__pycache__")
    )
    if (here / "make.py").is_file():
        subprocess.run([sys.executable, "-I", str(here / "make.py")], check=True, capture_output=True)
    return here


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_check_finds_nothing_in_an_example(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = copied(path.parent.name, tmp_path)
    monkeypatch.chdir(here)
    offline = {"HF_HUB_OFFLINE": "1"} if path.parent.name == "arithmetic" else {}
    config = source.read(Path(path.name), [])
    assert look.look(config, "grpo", tmp_path / "site", 1, here, offline, tmp_path) == []
    # The check reads the files: without them it finds something.
    (here / "rewards.py").unlink()
    assert look.look(config, "grpo", tmp_path / "site", 1, here, offline, tmp_path)


def test_the_examples_are_as_many_as_the_page_says() -> None:
    page = (ROOT / "docs" / "how-to" / "train.md").read_text()
    assert len(CONFIGS) == 7
    assert [path.name for path in CONFIGS if path.name not in page] == []


def test_the_model_is_a_file_of_safetensors_and_every_sum_is_right(tmp_path: Path) -> None:
    here = copied("arithmetic", tmp_path)
    content = (here / "model" / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    del header["__metadata__"]
    assert length % 8 == 0
    ends = [0, *(entry["data_offsets"][1] for entry in header.values())]
    assert [entry["data_offsets"][0] for entry in header.values()] == ends[:-1]
    assert ends[-1] == len(content) - 8 - length
    rows = [json.loads(line) for line in (here / "train.jsonl").read_text().splitlines()]
    assert all(str(eval(row["prompt"].rstrip("="))) == row["answer"] for row in rows)
    assert len({row["prompt"] for row in rows}) == 55


def test_a_verified_reward_is_that_of_the_right_number() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import rewards; print(rewards.correct(['7', ' 7=', '17', ''], answer=['7'] * 4))"],
        cwd=ROOT / "examples" / "arithmetic", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[1.0, 1.0, 0.0, 0.0]\n"
    answers = "[[{'content': 'so #### 1,234'}], [{'content': '#### $12.5'}], [{'content': '7'}]]"
    done = subprocess.run(
        [sys.executable, "-c", f"import rewards; print(rewards.correct({answers}, answer=['1234', '12.5', '7']))"],
        cwd=ROOT / "examples" / "gsm8k", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[1.0, 1.0, 0.0]\n"
