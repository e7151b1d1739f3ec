"""Every file that the doctor looks things up in has a date and is in order, and something says so where it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from doctor.know import data, published, threads
from scripts import knowledge, use_history
from scripts import published as reader


def test_every_file_has_a_date_and_is_in_order() -> None:
    assert list(knowledge.wrong()) == []
    dates = knowledge.dates()
    assert {"data.json", "cuda.json", "published.json", "threads.jsonl", "uses/trl.json", "apis/trl.json.gz"} <= set(
        dates
    )
    assert min(dates.values()) >= "2026-01-01"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"torch": [["<2.5", "12.1"], [">=2.6", "12.4"]]}, "is in 0 ranges"),
        ({"torch": [["<2.5", "12.1"], [">=2.4", "12.4"]]}, "is in 2 ranges"),
        ({"flash_attn": {"2.8": ["2.8.3", "2.7"]}}, "ends before it begins"),
        ({"more": {}}, "more has no source"),
    ],
)
def test_tables_that_do_not_hold_together_are_told(change: dict[str, Any], fault: str) -> None:
    tables = json.loads((knowledge.FOLDER / "cuda.json").read_text())
    assert any(fault in line for line in knowledge.wrong_cuda({**tables, **change}))


def test_a_thread_without_a_date_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    first = threads.load()[0]
    monkeypatch.setattr(threads, "load", lambda: (first._replace(date="yesterday"),))
    assert len(list(knowledge.wrong_threads())) == 1


def test_uses_are_written_one_file_a_package_and_keep_their_date(tmp_path: Path) -> None:
    cache, folder = tmp_path / "cache", tmp_path / "uses"
    cache.mkdir()
    for version, uses in {"0.9.0": ["a:x", "a:y"], "0.10.0": ["a:x"], "0.11.0": []}.items():
        (cache / f"trl=={version}.uses.json").write_text(json.dumps(uses))
    use_history.write(["trl", "peft"], cache, folder, "2026-01-01")
    entry = json.loads((folder / "trl.json").read_text())
    assert entry == {"date": "2026-01-01", "uses": {"a:x": "0.11.0", "a:y": "0.10.0"}}
    assert not (folder / "peft.json").exists() and use_history.wrong(folder) == []
    use_history.write(["trl"], cache, folder, "2026-02-02")
    assert json.loads((folder / "trl.json").read_text()) == entry  # what is the same keeps its date
    (folder / "other.json").write_text(use_history.text({"date": "", "uses": {"no use": "0.1"}}))
    assert len(use_history.wrong(folder)) == 4


def test_what_releases_need_is_read_from_their_metadata() -> None:
    metadata = {
        "requires_dist": ["Torch==2.8.0; platform_machine != 'x'", "huggingface_hub[x]>=0.16.4,<0.18",
                          "pytest; extra == 'dev'", "numpy"],
        "requires_python": ">=3.9",
    }  # fmt: skip
    assert reader.lines_of(metadata) == ["huggingface-hub<0.18,>=0.16.4", "torch==2.8.0", "python>=3.9"]
    assert published.requires("vllm", "0.11.0+cu128") == ("torch==2.8.0", "transformers>=4.55.2")
    assert published.of_torch("2.10.0+cpu") == "0.19.1" and published.of_torch("1.0") is None
    assert "trl" in data.load().uses
