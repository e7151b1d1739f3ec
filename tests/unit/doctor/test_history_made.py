"""How the history of names is made from wheels."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

from doctor.know import data
from scripts import api_changes, api_facts, api_history


def wheel(folder: Path, version: str, source: str) -> Path:
    path = folder / f"thing-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("thing/__init__.py", "from thing.core import act\n")
        archive.writestr("thing/core.py", source)
        # Some wheels have the line ends of Windows.
        end = "\r\n" if version == "2.0" else "\n"
        header = ["Name: thing", "Requires-Dist: other>=1", "", "Requires-Dist: text", ""]
        archive.writestr(f"thing-{version}.dist-info/METADATA", end.join(header))
    return path


def test_the_history_is_read_out_of_wheels(tmp_path: Path) -> None:
    sources = {
        "1.0": "def act(a): ...\nclass MyTrainer:\n    def __init__(self, x): self.seen = x\n",
        "2.0": "class OddError(Exception): ...\n@deprecate_kwarg('a', version='3.0')\ndef act(b): ...\n"
        "class MyTrainer:\n    def __init__(self, y): ...\n    def run(self, step): ...\n",
        "3.0": "class OddError(Exception): ...\ndef act(b): ...\n",
    }
    for version, source in sources.items():
        scanned = api_facts.scan(wheel(tmp_path, version, source), "thing")
        assert scanned["requires"] == ["other>=1"]
        packed = gzip.compress(json.dumps(scanned).encode())
        (tmp_path / f"thing=={version}.json.gz").write_bytes(packed)
    history_ = api_changes.history("thing", tmp_path, every=False)
    assert history_ is not None
    flat = data.flat(history_["changes"])
    assert flat["act(a"] == "+0 -3.0.0"  # a decorator still took it in 2.0
    assert flat["act(b"] == "+2.0.0"
    assert flat["thing.core:OddError"] == "+2.0.0"
    assert flat["MyTrainer(x"] == "+0 -2.0.0"
    assert flat["thing.core:MyTrainer"] == "+0 -3.0.0"
    assert "MyTrainer.run(step" not in flat  # it came and went with MyTrainer.run
    assert history_["requires"]["3.0"] == ["other>=1"]


def test_the_history_that_is_kept_knows_what_people_ask_for() -> None:
    apis = data.load().apis
    known = {
        ("vllm", "vllm.sampling_params:GuidedDecodingParams"): "-0.12.0",
        ("vllm", "EngineArgs(worker_extension_cls"): "+0.8.0",
        ("torch", "torch.distributed.fsdp:fully_shard"): "+2.6.0",
        ("peft", "LoraConfig(corda_config"): "+0.15.0",
        ("transformers", "Trainer.compute_loss(num_items_in_batch"): "+4.46.1",
        ("transformers", "ModuleUtilsMixin.get_head_mask"): "-5.0.0",
    }
    for (package, fact), change in known.items():
        assert change in apis[package].changes[fact].split(), fact
    assert "peft" in " ".join(apis["unsloth"].requires["2025.9.1"])


def test_one_file_is_written_for_each_package_and_can_be_checked(tmp_path: Path) -> None:
    cache, folder = tmp_path / "cache", tmp_path / "apis"
    cache.mkdir()
    for version, source in {"1.0.0": "def act(a): ...\n", "1.2.0": "def act(b): ...\n"}.items():
        scanned = api_facts.scan(wheel(tmp_path, version, source), "thing")
        (cache / f"thing=={version}.json.gz").write_bytes(gzip.compress(json.dumps(scanned).encode()))
    (cache / "thing.releases.json").write_text('["0.9", "1.0.0", "1.1.0", "1.1.1rc1", "1.2.0", "1.3.0"]')
    api_history.write(["thing", "unknown"], cache, folder, "2026-01-01")
    written = (folder / "thing.json.gz").read_bytes()
    entry = json.loads(gzip.decompress(written))
    assert (entry["date"], entry["read"], entry["unread"]) == ("2026-01-01", ["1.0.0", "1.2.0"], ["1.1.0"])
    assert json.loads((folder / "index.json").read_text()) == {"packages": ["thing"]}
    assert api_history.wrong(folder) == []
    # What is the same keeps its date; without facts, the file that is there stays.
    api_history.write(["thing"], cache, folder, "2026-02-02")
    api_history.write(["thing"], tmp_path, folder, "2026-02-02")
    assert (folder / "thing.json.gz").read_bytes() == written
    (folder / "other.json.gz").write_bytes(gzip.compress(json.dumps({**entry, "date": ""}).encode()))
    assert [fault.partition(":")[0] for fault in api_history.wrong(folder)] == [
        "index.json does not list the files beside it", "other", "other",
    ]  # fmt: skip


def test_the_kept_files_are_as_the_generator_writes_them() -> None:
    assert api_history.wrong(api_history.FOLDER) == []
