"""The merged config: the file, with the options of the command line as YAML values of their types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.config.names import BOOLEANS, TRUE, negated
from runtime.config.options import Option
from runtime.config.source import Config, Setting


def merged(config: Config, options: Mapping[str, Option]) -> dict[str, Any]:
    """Option -> value. Text that has no type here stays text, and TRL converts it."""
    settings: dict[str, Any] = {}
    for setting in config.settings:
        name, value = _value(setting, options)
        settings[name] = value
    return settings


def _value(setting: Setting, options: Mapping[str, Option]) -> tuple[str, Any]:
    if setting.line is not None:
        return setting.name, setting.value
    name = setting.name
    if setting.value is True and name not in options and (opposite := negated(name, options)):
        return opposite, False
    option = options.get(name)
    if option is None or setting.value is True:
        return name, setting.value
    if option.takes("list") or option.takes("Sequence"):
        items = setting.value if isinstance(setting.value, list) else [setting.value]
        return name, [_typed(item, option) for item in items]
    return name, setting.value if isinstance(setting.value, list) else _typed(setting.value, option)


def _typed(text: str, option: Option) -> Any:
    if option.takes("str"):
        return text
    if option.takes("bool") and text.lower() in BOOLEANS:
        return text.lower() in TRUE
    for kind in (int, float):
        if option.takes(kind.__name__):
            try:
                return kind(text)
            except ValueError:
                continue
    return text
