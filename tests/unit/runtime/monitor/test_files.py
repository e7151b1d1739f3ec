"""What a monitor leaves in the folder of a run, and the file that carries it elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from runtime.monitor import certificate, judge, pack, picture, record
from tests.unit.runtime.monitor.conftest import DIGEST


def test_rows_come_back_and_what_a_resumed_run_does_again_is_removed(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        record.add(tmp_path, 0, {"step": step, "kl_start": float("nan") if step == 1 else 0.25})
    record.add(tmp_path, 1, {"step": 1})
    (tmp_path / record.SUMMARY).write_text("{}")
    with record.path(tmp_path, 0).open("a") as file:
        file.write('{"step": 4, "kl')
    assert [row["step"] for row in record.read(tmp_path)] == [1, 1, 2, 3]
    assert record.begin(tmp_path, 0, 2, ranks=2)["kl_start"] == 0.25
    assert [row["step"] for row in record.read(tmp_path) if "kl_start" in row] == [1, 2]
    assert not (tmp_path / record.SUMMARY).exists()


def test_rows_of_ranks_that_are_no_more_are_removed_as_well(tmp_path: Path) -> None:
    for rank in range(3):
        for step in (1, 2):
            record.add(tmp_path, rank, {"step": step, "rank": rank})
    record.begin(tmp_path, 0, 1, ranks=2)  # resumed on two
    kept = sorted((row["rank"], row["step"]) for row in record.read(tmp_path))
    assert kept == [(0, 1), (1, 1), (1, 2), (2, 1)]  # the second rank removes its own
    record.begin(tmp_path, 1, 1, ranks=2)
    assert record.begin(tmp_path, 0, 0, ranks=1) == {}  # another run, on one
    assert list(tmp_path.glob("monitor.*.jsonl")) == []


def test_the_picture_is_svg_with_a_strip_for_each_check_that_judged(tmp_path: Path) -> None:
    rows = [{"step": step, "gradient_angle": 0.5 if step == 9 else 0.0, "kl_start": "inf"} for step in range(2000)]
    drawn = picture.write(tmp_path, rows, judge.results(rows, {}))
    assert drawn is not None
    texts = [element.text for element in ET.fromstring(drawn.read_text()).iter("{http://www.w3.org/2000/svg}text")]
    assert "gradient-direction" in texts
    assert "alarm: worst 0.5, bound 0.02" in texts
    assert len(drawn.read_text()) < 50_000
    assert picture.write(tmp_path, [], judge.results([], {})) is None


def test_the_certificate_is_about_the_files_of_the_run(finished: Path) -> None:
    document = json.loads((finished / certificate.NAME).read_text())
    assert {entry["name"] for entry in document["subject"]} == {
        "config.yaml", "run.json", "monitor.json", "monitor.jsonl", "model.safetensors",
    }  # fmt: skip
    predicate = document["predicate"]
    image = predicate["configuration"][0]
    assert (image["name"], image["digest"]["sha256"]) == ("registry.example/trl", DIGEST)
    assert predicate["notRun"]["weights-synced"] == "no vLLM"
    assert predicate["steps"] == {"first": 1, "last": 3, "judged": 3}
    assert any("not signed" in spot for spot in predicate["blindSpots"])


def test_without_a_model_of_its_own_the_last_checkpoint_counts(finished: Path) -> None:
    (finished / "model.safetensors").unlink()
    for step in (9, 10):
        (finished / f"checkpoint-{step}").mkdir()
        (finished / f"checkpoint-{step}" / "adapter_model.safetensors").write_bytes(b"weights")
    assert [name for name in certificate.files(finished) if "/" in name] == ["checkpoint-10/adapter_model.safetensors"]


def test_a_run_without_a_monitor_gets_no_certificate(tmp_path: Path) -> None:
    assert certificate.write(tmp_path) is None


def test_packed_it_is_one_file_that_any_python_imports(tmp_path: Path) -> None:
    first, second = tmp_path / "vetted_monitor.zip", tmp_path / "again.zip"
    assert pack.pack(first) == pack.pack(second)
    assert first.read_bytes() == second.read_bytes()
    code = "from vetted_monitor import judge, watch; print(judge.breaches({'step': 1, 'kl_start': 1.0})[0])"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(first)!r}); {code}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "step 1: policy and reference are 1 nats apart before the first update\n", done.stderr


def test_what_a_run_could_not_see_is_a_blind_spot_of_its_certificate(finished: Path) -> None:
    summary = json.loads((finished / record.SUMMARY).read_text())
    (finished / record.SUMMARY).write_text(json.dumps({**summary, "blind": ["the weights of some ranks"]}))
    certificate.write(finished)
    predicate = json.loads((finished / certificate.NAME).read_text())["predicate"]
    assert "the weights of some ranks" in predicate["blindSpots"]
