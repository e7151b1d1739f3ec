"""Options that do not exist, that are set twice, or whose value has the wrong type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runtime.check import Check
from runtime.config.options import Option
from runtime.config.source import Config, Setting

# HfArgumentParser's words for a bool. https://github.com/huggingface/transformers/blob/main/src/transformers/hf_argparser.py
TRUE = {"yes", "true", "t", "y", "1"}
BOOLEANS = {*TRUE, "no", "false", "f", "n", "0"}
ENVIRONMENT = "env"  # TRL sets its mapping as environment variables


def nearest(word: str, words: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(word, sorted(words), 1, 0.7)), None)


def variables(config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a run: what `env` in its config sets wins, as in TRL."""
    own = config.get(ENVIRONMENT)
    return {**environ, **({str(name): str(value) for name, value in own.items()} if isinstance(own, Mapping) else {})}


def negated(name: str, options: Mapping[str, Option]) -> str | None:
    """The option that `--no_x` on the command line sets to false: the parser has it for an x that is true."""
    option = options.get(name.removeprefix("no_")) if name.startswith("no_") else None
    return option.name if option is not None and option.default is True else None


def unknown(config: Config, options: Mapping[str, Option], launch: Iterable[str]) -> Iterator[Check]:
    """A "stop" for each name that neither the script nor the launcher knows."""
    known = {*options, *launch, ENVIRONMENT}
    for setting in config.settings:
        if setting.name in known or (setting.line is None and negated(setting.name, options)):
            continue
        close = nearest(setting.name, known)
        message = f"{config.place(setting)}: there is no option {setting.name}"
        if close:
            yield Check("stop", message, f"did you mean {close}?")
        else:
            yield Check("stop", message, "remove it; an option of another tool has no effect here")


def repeated(config: Config) -> Iterator[Check]:
    for setting in config.repeated:
        message = f"{config.place(setting)}: {setting.name} is set again below, and only the last one counts"
        yield Check("stop", message, "remove one of the two")


def values(config: Config, options: Mapping[str, Option], compared: Mapping[str, frozenset[str]]) -> Iterator[Check]:
    """A "stop" for each value that TRL's parser or trainer is sure to refuse."""
    for setting in config.settings:
        option = options.get(setting.name)
        if option is None or setting.value is None:
            continue
        if kind := _mismatch(setting.value, option):
            yield Check("stop", f"{config.place(setting)}: {setting.name} is {setting.value!r}", f"give {kind}")
        elif option.choices and setting.text() not in option.choices and not isinstance(setting.value, bool):
            yield _not_one_of(config, setting, option.choices)
        elif isinstance(setting.value, str) and _misspelt(setting.value, compared.get(setting.name, frozenset())):
            yield _not_one_of(config, setting, sorted(compared[setting.name]))


def _not_one_of(config: Config, setting: Setting, choices: Iterable[str]) -> Check:
    close = nearest(setting.text(), choices)
    message = f"{config.place(setting)}: {setting.name} does not take {setting.text()!r}"
    return Check("stop", message, f"did you mean {close}?" if close else f"give one of: {', '.join(choices)}")


def _misspelt(value: str, known: frozenset[str]) -> bool:
    """Whether a value is close to a known one. Another one may be right: not all values are compared in one file."""
    return bool(known) and value not in known and nearest(value, known) is not None


def _mismatch(value: Any, option: Option) -> str:
    """What the option takes instead of this value; empty where the value may be right."""
    kinds = {kind for kind in ("str", "int", "float", "bool", "dict", "list", "Sequence") if option.takes(kind)}
    if not kinds or "Any" in option.annotation.replace("dict[str, Any]", ""):
        return ""
    if isinstance(value, bool):
        if "no" in option.choices and not value:
            return '"no" with the quotes: YAML reads no as false'
        return "" if kinds & {"bool", "str", "int", "float"} else "a value, not true or false"
    if isinstance(value, dict):
        return "" if kinds & {"dict", "str"} else "a single value, not a mapping"
    if isinstance(value, list):
        return "" if kinds & {"list", "Sequence", "str"} else "a single value, not a list"
    if isinstance(value, str):
        return _unconvertible(value, kinds)
    return "" if kinds & {"int", "float", "str", "bool", "list"} else "a mapping"


def _unconvertible(value: str, kinds: set[str]) -> str:
    """The parser converts text, so `1e-6`, which is text in YAML 1.1, is a number."""
    if kinds & {"str", "dict", "list", "Sequence"}:
        return ""
    if "float" in kinds and _converts(float, value):
        return ""
    if "int" in kinds and _converts(int, value):
        return ""
    if "bool" in kinds and value.lower() in BOOLEANS:
        return ""
    if kinds == {"bool"}:
        return "true or false"
    return "a whole number" if "float" not in kinds else "a number"


def _converts(kind: type, value: str) -> bool:
    try:
        kind(value)
    except ValueError:
        return False
    return True
