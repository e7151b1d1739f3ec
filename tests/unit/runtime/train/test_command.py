"""`vetted train`, up to the start of its processes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from runtime import capability, preflight
from runtime.check import Check
from runtime.config import advisories
from runtime.monitor import certificate, record
from runtime.train import command, process
from tests.unit.runtime.conftest import GOOD
from tests.unit.runtime.monitor.conftest import summarise
from tests.unit.runtime.train.conftest import Start, run_folder


def checkpoint(tmp_path: Path) -> None:
    folder = run_folder(tmp_path) / "checkpoint-2"
    folder.mkdir()
    (folder / "trainer_state.json").touch()


def test_a_secret_reaches_the_run_and_is_written_nowhere(
    tmp_path: Path, train: Callable[..., Start], here: Path
) -> None:
    (here / "my.yaml").write_text(f"{GOOD}env: {{WANDB_API_KEY: secret-1, NCCL_DEBUG: INFO}}\n")
    argv, environ = train("--config", "my.yaml", "--hub_token", "secret-2", "--no-check")
    assert argv[-2:] == ["--hub_token", "secret-2"]
    assert environ["WANDB_API_KEY"] == "secret-1"
    for path in run_folder(tmp_path).iterdir():
        assert "secret-" not in path.read_text()


def test_a_resumed_run_has_the_options_and_variables_that_it_began_with(
    tmp_path: Path, train: Callable[..., Start], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(os.environ)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")
    train("--config", "my.yaml", "--max_steps", "300")
    checkpoint(tmp_path)
    for name in ("TOKENIZERS_PARALLELISM", "VLLM_LOGGING_LEVEL", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")
    _, environ = train("--resume")
    assert environ["TOKENIZERS_PARALLELISM"] == "true"  # not the default of a run
    assert environ["VLLM_LOGGING_LEVEL"] == "INFO"  # what is set now wins
    assert "LD_LIBRARY_PATH" not in environ
    assert yaml.safe_load((run_folder(tmp_path) / "config.yaml").read_text())["max_steps"] == 300
    assert environ["VETTED_CHECKPOINT"] == str(run_folder(tmp_path) / "checkpoint-2")
    commands = json.loads((run_folder(tmp_path) / "run.json").read_text())["commands"]
    assert commands == [
        ["vetted", "train", "--config", "my.yaml", "--max_steps", "300"],
        ["vetted", "train", "--resume"],
    ]
    assert "PYTHONSAFEPATH" in environ and os.environ.get("PYTHONSAFEPATH") == before.get("PYTHONSAFEPATH")


NODE_1 = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "gpu1"}


def test_node_0_writes_the_run_and_the_others_learn_it_from_its_ranks(
    tmp_path: Path, train: Callable[..., Start], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (NODE_1 | {"PET_LOG_DIR": "/elsewhere"}).items():
        monkeypatch.setenv(name, value)
    argv, environ = train("--config", "my.yaml")
    assert "--node_rank 1 --master_addr gpu1" in " ".join(argv)
    assert list((tmp_path / "runs").iterdir()) == []
    assert not Path(environ["VETTED_OUTPUT"]).exists()  # a folder of its own, until the end
    assert "PET_LOG_DIR" not in environ
    monkeypatch.setenv("NODE_RANK", "0")
    mine, environ = train("--config", "my.yaml")
    assert [word for word in mine if word not in argv] == ["0"]  # nothing else differs
    assert environ["VETTED_OUTPUT"] == str(run_folder(tmp_path))
    # The same when it is resumed: node 1 reads the config of the run, and changes nothing in its folder.
    checkpoint(tmp_path)
    record = (run_folder(tmp_path) / "run.json").read_text()
    monkeypatch.setenv("NODE_RANK", "1")
    _, environ = train("--resume")
    assert environ["VETTED_CHECKPOINT"] == ""
    assert (run_folder(tmp_path) / "run.json").read_text() == record


def test_the_config_of_a_run_does_not_say_on_which_nodes_it_ran(tmp_path: Path, train: Callable[..., Start]) -> None:
    words = ("--num_machines", "2", "--machine_rank", "0", "--main_process_ip", "gpu1", "--main_process_port", "5")
    argv, _ = train("--config", "my.yaml", *words, "--num_processes", "4")
    assert "--nnodes 2 --nproc_per_node 2 --node_rank 0 --master_addr gpu1 --master_port 5" in " ".join(argv)
    saved = yaml.safe_load((run_folder(tmp_path) / "config.yaml").read_text())
    assert saved["num_processes"] == "4"
    assert not {"num_machines", "machine_rank", "main_process_ip", "main_process_port"} & set(saved)


def test_a_file_of_accelerate_for_several_machines_is_believed(train: Callable[..., Start], here: Path) -> None:
    (here / "two.yaml").write_text("num_machines: 2\nmachine_rank: 1\nmain_process_ip: gpu1\nnum_processes: 2\n")
    argv, _ = train("--config", "my.yaml", "--accelerate_config", "two.yaml")
    assert "--main_process_port 29500 --machine_rank 1 --main_process_ip gpu1" in " ".join(argv)
    (here / "two.yaml").write_text("[")
    argv, _ = train("--config", "my.yaml", "--accelerate_config", "two.yaml", "--no-check")
    assert "--num_machines 1" in " ".join(argv)


def test_batches_count_the_processes_of_all_nodes(
    train: Callable[..., Start], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "my.yaml").write_text(f"{GOOD}per_device_train_batch_size: 4\nnum_generations: 8\n")
    for name, value in (NODE_1 | {"NODE_RANK": "0"}).items():
        monkeypatch.setenv(name, value)
    train("--config", "my.yaml")
    monkeypatch.setenv("NNODES", "1")
    with pytest.raises(AssertionError):
        train("--config", "my.yaml")
    assert "4 x 1 process = 4 completions, which num_generations 8 does not divide" in capsys.readouterr().err


def test_a_config_of_trl_for_the_launcher_is_found_in_the_stack(train: Callable[..., Start], site: Path) -> None:
    argv, _ = train("--config", "my.yaml", "--accelerate_config", "zero3")
    assert argv[argv.index("--config_file") + 1] == str(site / "trl/accelerate_configs/zero3.yaml")


MODEL = {
    "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 3072, "vocab_size": 151936, "max_position_embeddings": 512,
}  # fmt: skip
Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_run_on_a_gpu_says_how_much_memory_it_takes(
    train: Callable[..., Start], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output, gpus: int
) -> None:
    (here / "model/config.json").write_text(json.dumps(MODEL))
    stack = {"distributions": {"nvidia-cuda-runtime": "13.0.96", "torch": "2.13.0"}} if gpus else {}
    monkeypatch.setattr(preflight, "stack", lambda _root: stack)
    monkeypatch.setattr(preflight, "gpus", lambda _root, _environ: ["NVIDIA H200"] * gpus)
    monkeypatch.setattr(capability, "memory", lambda: {"NVIDIA H200": 140 << 30, "Tesla T4": 15 << 30})
    train("--config", "my.yaml")
    shown = [line for line in capsys.readouterr().err.splitlines() if line.startswith("memory")]
    assert len(shown) == gpus
    assert all("of 140 GiB" in line for line in shown)


def test_check_starts_nothing_and_leaves_nothing(
    tmp_path: Path, train: Callable[..., Start], here: Path, site: Path, capsys: Output
) -> None:
    (here / "model/config.json").write_text(json.dumps(MODEL))
    with pytest.raises(IndexError):  # no start
        train("--config", "my.yaml", "--check")
    assert list((tmp_path / "runs").iterdir()) == []
    shown = capsys.readouterr().err
    assert "config   3 options, no mistake found\nmemory   about " in shown  # asked for, so without a GPU, too
    assert "run      " not in shown
    assert command.main(("--config", "my.yaml", "--check", "--max_step", "3"), tmp_path / "runs", site) == 2


def test_check_leaves_a_run_that_is_resumed_as_it_is(tmp_path: Path, train: Callable[..., Start]) -> None:
    train("--config", "my.yaml")
    checkpoint(tmp_path)
    before = (run_folder(tmp_path) / "run.json").read_text()
    starts = train("--resume", "--check", "--max_steps", "9")
    assert "--resume_from_checkpoint" not in starts[0]  # it is the first start
    assert (run_folder(tmp_path) / "run.json").read_text() == before


def test_an_advisory_that_was_seen_to_fail_stops_a_run(
    tmp_path: Path, train: Callable[..., Start], site: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setattr(advisories, "look", lambda *_: [Check("stop", "VETTED-0001: it breaks", "such a run fails")])
    assert command.main(("--config", "my.yaml"), tmp_path / "runs", site) == 2
    assert "config   VETTED-0001: it breaks\n         such a run fails\n" in capsys.readouterr().err
    monkeypatch.setattr(advisories, "look", lambda *_: [Check("advice", "VETTED-0002: wrong", "do this")])
    train("--config", "my.yaml")
    assert "advice   VETTED-0002: wrong\n         do this\n" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--output_dir", "out"), ("--output_dir=out",), ("--output-dir", "out"), ()])
def test_where_a_command_of_trl_writes_is_not_where_the_run_does(
    tmp_path: Path, train: Callable[..., Start], here: Path, capsys: Output, words: tuple[str, ...]
) -> None:
    (here / "my.yaml").write_text(GOOD if words else f"{GOOD}output_dir: out\n")
    argv, environ = train("--config", "my.yaml", *words)
    place = "--output_dir" if words else "my.yaml:4"
    assert f"note     {place}: output_dir is not used: runs go to /runs/<time>\n" in capsys.readouterr().err
    assert "out" not in argv
    assert environ["VETTED_OUTPUT"] == str(run_folder(tmp_path))
    assert "output_dir" not in (run_folder(tmp_path) / "config.yaml").read_text()


def test_a_complete_run_is_not_trained_further_unasked(
    tmp_path: Path, train: Callable[..., Start], capsys: pytest.CaptureFixture[str]
) -> None:
    first = train("--config", "my.yaml")
    checkpoint(tmp_path)
    state = run_folder(tmp_path) / "checkpoint-2" / "trainer_state.json"
    record = (run_folder(tmp_path) / "run.json").read_text()
    state.write_text('{"global_step": 2, "max_steps": 2}')
    assert train("--resume") is first  # nothing was started
    name = run_folder(tmp_path).name
    assert f"the run {name} is complete: 2 of 2 steps\nnext: vetted train --resume {name} --max_steps 4" in (
        capsys.readouterr().err
    )
    assert (run_folder(tmp_path) / "run.json").read_text() == record
    assert train("--resume", "--max_steps", "4") is not first
    state.write_text('{"global_step": 2, "max_steps": 5}')
    second = train("--resume")
    assert second[1]["VETTED_CHECKPOINT"].endswith("checkpoint-2") and second is not first


def test_the_monitor_is_on_unless_it_is_switched_off(train: Callable[..., Start]) -> None:
    assert "VETTED_MONITOR" not in train("--config", "my.yaml")[1]
    assert train("--config", "my.yaml", "--no-monitor")[1]["VETTED_MONITOR"] == "0"


def test_a_run_that_was_watched_ends_with_a_certificate(
    tmp_path: Path, train: Callable[..., Start], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_argv: Sequence[str], stop: Path, _environ: Mapping[str, str]) -> int:
        record.add(stop.parent, 0, {"step": 1, "rank": 0, "gradient_angle": 0.0})
        summarise(stop.parent)
        (stop.parent / "model.safetensors").write_bytes(b"saved after training")
        return 0

    monkeypatch.setattr(process, "run", run)
    with pytest.raises(IndexError):  # nothing was started
        train("--config", "my.yaml")
    folder = run_folder(tmp_path)
    assert f"certificate PASSED: {folder / certificate.NAME}; next: vetted verify {folder}" in capsys.readouterr().err
    assert "model.safetensors" in (folder / certificate.NAME).read_text()
