"""What the user sets, with where it stands: in the config by line, and on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

LARGEST = 1024 * 1024  # bytes of a config


@dataclass(frozen=True)
class Setting:
    """An option and its value: any YAML value, or text from the command line. `line` is None there."""

    name: str
    value: Any
    line: int | None = None

    def text(self) -> str:
        return str(self.value)


class ConfigError(Exception):
    """The config is no YAML mapping. The message has the line."""


@dataclass(frozen=True)
class Config:
    """The settings of a run. `file` is as the user named it; the command line wins over it."""

    file: str
    settings: tuple[Setting, ...]
    repeated: tuple[Setting, ...] = ()  # set earlier in the same file, and lost

    def find(self, name: str) -> Setting | None:
        return next((setting for setting in reversed(self.settings) if setting.name == name), None)

    def get(self, name: str, default: Any = None) -> Any:
        """The value that counts, or the default where the option is not set or is null."""
        setting = self.find(name)
        return default if setting is None or setting.value is None else setting.value

    def place(self, setting: Setting) -> str:
        """Where it stands, as compilers write it: "my.yaml:7", or "--learning_rate"."""
        return f"--{setting.name}" if setting.line is None else f"{self.file}:{setting.line}"


def read(path: Path | None, arguments: Sequence[str]) -> Config:
    """Read a config and the options on the command line. Raises OSError, ConfigError."""
    settings: list[Setting] = []
    repeated: list[Setting] = []
    if path is not None:
        for setting in _yaml(path):
            earlier = [other for other in settings if other.name == setting.name]
            repeated += earlier
            settings = [other for other in settings if other not in earlier]
            settings.append(setting)
    return Config(str(path or ""), (*settings, *_arguments(arguments)), tuple(repeated))


def _yaml(path: Path) -> list[Setting]:
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ConfigError(f"{path} is larger than 1 MiB, so it is not a config")
    try:
        loader = yaml.SafeLoader(content)
        root = loader.get_single_node()
        pairs = [
            Setting(str(key.value), loader.construct_object(value, deep=True), key.start_mark.line + 1)
            for key, value in (root.value if isinstance(root, yaml.MappingNode) else ())
        ]
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: this is not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: this is not YAML: {error}") from error
    if root is not None and not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path}: a config is a mapping, one `option: value` a line")
    return pairs


def _arguments(arguments: Iterable[str]) -> Iterator[Setting]:
    """`--name value`, `--name=value`, and `--name` alone, which is True. Several values are a list."""
    name, values = "", list[str]()
    for argument in (*arguments, "--"):
        if not argument.startswith("--"):
            values.append(argument)
            continue
        if name:
            yield Setting(name, (values[0] if len(values) == 1 else values) if values else True)
        name, equals, value = argument[2:].partition("=")
        name, values = name.replace("-", "_"), [value] if equals else []
