"""The settings of a run: from YAML with their lines, and from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.config import source
from runtime.config.source import ConfigError, Setting


def test_every_option_has_its_line_and_the_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("# first\nbeta: 0.1\n\nreward_funcs:\n- a.b\n- c.d\nlearning_rate: 1e-6\n")
    config = source.read(path, ["--beta=0.2", "--temperature", "-0.5", "--use-vllm", "--reward_weights", "1", "2"])
    assert config.settings == (
        Setting("beta", 0.1, 2),
        Setting("reward_funcs", ["a.b", "c.d"], 4),
        Setting("learning_rate", "1e-6", 7),
        Setting("beta", "0.2"),
        Setting("temperature", "-0.5"),
        Setting("use_vllm", True),
        Setting("reward_weights", ["1", "2"]),
    )
    assert config.get("beta") == "0.2"
    assert config.place(config.settings[0]) == f"{path}:2"
    assert config.place(config.settings[3]) == "--beta"


def test_json_is_yaml_and_an_empty_config_is_one(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text('{"beta": 1,\n "env": {"A": "b"}}')
    assert source.read(path, ()).settings == (Setting("beta", 1, 1), Setting("env", {"A": "b"}, 2))
    path.write_text("# nothing\n")
    assert source.read(path, ()).settings == ()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"beta: [1\nother: 2\n", ":2: this is not YAML"),
        (b"just text\n", "is a mapping"),
        (b"- beta\n", "is a mapping"),
        (b"beta: \xff\n", "this is not YAML"),
        (b"day: 2026-13-45\n", "this is not YAML"),
        (b"a: " + b"[" * 100_000, "this is not YAML"),
        (b"a: 1\n" * 300_000, "larger than 1 MiB"),
        (b"a: !!python/object:os.system x\n", "this is not YAML"),
    ],
)
def test_what_is_no_config_is_refused_with_its_place(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "my.yaml"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as error:
        source.read(path, ())
    assert str(error.value).startswith(str(path))
    assert words in str(error.value)
