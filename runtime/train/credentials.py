"""Secrets among the options of a run, such as hub_token: they reach the run and are written nowhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runtime.config.names import ENVIRONMENT

# Not eos_token, pad_token or max_tokens.
OPTION = re.compile(r"(hub|auth|access|api)_?token|^token$|api_?key|secret|password|credential", re.IGNORECASE)
VARIABLE = re.compile(r"KEY|TOKEN$|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
HIDDEN = "***"


def split(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings without those that hold a secret, and those that do. Of `env` only the variables are taken out."""
    public: dict[str, Any] = {}
    secret: dict[str, Any] = {}
    for name, value in settings.items():
        if name == ENVIRONMENT and isinstance(value, Mapping):
            variables = {str(key): text for key, text in value.items() if VARIABLE.search(str(key))}
            public[name] = {key: text for key, text in value.items() if str(key) not in variables}
            secret |= {ENVIRONMENT: variables} if variables else {}
        elif value is not None and (OPTION.search(name) or any(map(OPTION.search, _keys(value)))):
            secret[name] = value
        else:
            public[name] = value
    return public, secret


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _keys(inner)


def arguments(secret: Mapping[str, Any]) -> list[str]:
    """Settings as options of a TRL script, except `env`."""
    words: list[str] = []
    for name, value in secret.items():
        if name != ENVIRONMENT:
            values = value if isinstance(value, list) else [value]
            words += [f"--{name}", *(json.dumps(each) if isinstance(each, Mapping) else str(each) for each in values)]
    return words


def variables(secret: Mapping[str, Any]) -> dict[str, str]:
    """The environment variables among them."""
    return {name: str(value) for name, value in secret.get(ENVIRONMENT, {}).items()}


def without(words: Sequence[str]) -> tuple[str, ...]:
    """The arguments of a command without the options that hold a secret."""
    return tuple(word for word in hidden(words) if not word.endswith(HIDDEN))


def hidden(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command with each secret replaced: `--hub_token=***`."""
    shown: list[str] = []
    option = ""
    for word in words:
        if word.startswith("--"):
            option = word.partition("=")[0]
            secret = OPTION.search(option[2:].replace("-", "_")) is not None
            shown.append(f"{option}={HIDDEN}" if secret else word)
            option = option if secret else ""
        elif not option:
            shown.append(word)
    return tuple(shown)
