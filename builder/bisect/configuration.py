"""A training configuration, for `trl grpo --config`, as a bisection takes it apart: settings to search, and the rest.

A tiny model, data set and reward of ours stand in for the person's, unless they keep theirs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from builder.base import errors, reading
from builder.base.text import word

# The settings of each thing that one of ours stands in for.
OURS = {
    "model": ("model_name_or_path", "model_revision", "trust_remote_code"),
    "data": ("dataset_name", "dataset_config", "dataset_train_split", "dataset_test_split", "dataset_streaming",
             "datasets", "dataset_mixture", "test_split_size"),
    "reward": ("reward_funcs", "reward_model_name_or_path"),
}  # fmt: skip
# A trial decides where it writes, and it reports to nobody.
NEVER = ("output_dir", "push_to_hub", "hub_model_id", "hub_token", "resume_from_checkpoint", "overwrite_output_dir",
         "report_to", "disable_tqdm", "run_name", "logging_dir")  # fmt: skip
# More of these takes longer, and shows nothing more with a tiny model.
MOST = {"max_completion_length": 32, "max_steps": 2}
MOST_VALUES = 10_000  # in a configuration
LENGTHS = ("num_train_epochs",)  # means nothing beside max_steps, which a trial has
PACKAGES = ("torch", "transformers", "datasets", "peft", "trl")


@dataclass(frozen=True)
class Configuration:
    """A configuration taken apart.

    `settings` are searched; `ours` names the things that ours stand in for, `replaced` the settings that go with them;
    `reduced` has the person's value and ours of each setting that was too long for a trial.
    """

    path: Path
    settings: Mapping[str, Any]
    ours: tuple[str, ...]
    replaced: tuple[str, ...]
    reduced: Mapping[str, tuple[Any, Any]]

    @property
    def packages(self) -> list[str]:
        """The packages that a trial may need, which are imported once."""
        more = {
            "deepspeed": "deepspeed" in self.settings,
            "bitsandbytes": any(self.settings.get(key) for key in ("load_in_4bit", "load_in_8bit")),
            "vllm": bool(self.settings.get("use_vllm")),
        }
        return [*PACKAGES, *(name for name, needed in more.items() if needed)]

    def key(self, environment: str, suite: str) -> str:
        """The name of this bisection: the settings, and the digests of the environment and the suite."""
        parts = json.dumps([dict(self.settings), self.ours, environment, suite], sort_keys=True)
        return f"config-{hashlib.sha256(parts.encode()).hexdigest()[:12]}"

    def part(self, names: Iterable[str]) -> dict[str, Any]:
        """These settings, in the order of the configuration."""
        chosen = set(names)
        return {name: value for name, value in self.settings.items() if name in chosen}


def read(path: Path, keep: Sequence[str]) -> Configuration:
    """Read a configuration as `trl grpo --config` does. Raises BadInputError.

    `keep`: model, data, reward, or a setting, which stays as it is.
    """
    data = _settings(path)
    ours = tuple(name for name in OURS if name not in keep)
    gone = {*NEVER, *LENGTHS, *(setting for name in ours for setting in OURS[name])} - set(keep)
    settings, reduced = {}, {}
    for name, value in data.items():
        most = MOST.get(name)
        if name in gone:
            continue
        if most is not None and name not in keep and isinstance(value, int) and not 0 < value <= most:
            reduced[name] = (value, most)
            value = most
        settings[name] = _absolute(value, path.parent)
    if not settings:
        raise errors.BadInputError(f"{path} has nothing to search", next_step="--keep model, data or reward")
    return Configuration(path, settings, ours, tuple(name for name in data if name in gone), reduced)


def _settings(path: Path) -> Mapping[str, Any]:
    """The YAML mapping in a file, of values that JSON can represent. Raises BadInputError."""
    try:
        data = yaml.safe_load(reading.text(path, str(path), most=reading.WRITTEN))
    except FileNotFoundError as error:
        raise errors.BadInputError(f"{path} does not exist", next_step="--config FILE, as for trl grpo") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise errors.BadInputError(
            f"{path}: not YAML: {' '.join(str(error).split())}", next_step=f"correct {word(path)}"
        ) from error
    if not isinstance(data, dict) or not data or not all(isinstance(name, str) for name in data):
        raise errors.BadInputError(f"{path} has no settings", next_step="write them as name: value")
    if _more_than(MOST_VALUES, data):
        raise errors.BadInputError(f"{path} has more than {MOST_VALUES} values", next_step=f"correct {word(path)}")
    try:
        json.dumps(data, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.BadInputError(f"{path}: {error}", next_step=f"correct {word(path)}") from error
    return data


def _more_than(most: int, data: object) -> bool:
    """Are there more values? Each use of a YAML alias counts: ten aliases of ten aliases of ten are a thousand."""
    waiting = [data]
    while waiting and most >= 0:
        value, most = waiting.pop(), most - 1
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return most < 0


def _absolute(value: Any, folder: Path) -> Any:
    """The absolute path of a value that names a file beside the configuration; any other value as it is."""
    if isinstance(value, str) and value and "\n" not in value and len(value) < 200 and (folder / value).is_file():
        return str((folder / value).resolve())
    return value


def dump(settings: Mapping[str, Any]) -> str:
    """Settings as YAML."""
    return str(yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True))
