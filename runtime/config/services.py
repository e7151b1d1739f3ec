"""What a run needs besides model, data and rewards: files of DeepSpeed and accelerate, a key for W&B, LoRA."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from runtime.check import Check
from runtime.config.names import nearest, variables
from runtime.config.source import Config

KEY = Path("run/secrets/wandb_api_key")  # below the root


def look(config: Config, site: Path, here: Path, environ: Mapping[str, str], root: Path) -> Iterator[Check]:
    """Checks of options that name another file or a service."""
    yield from _deepspeed(config, here)
    yield from _accelerate(config, site, here)
    yield from _wandb(config, environ, root)
    if (four := config.find("load_in_4bit")) is not None and _true(four.value) and not _true(config.get("use_peft")):
        message = f"{config.place(four)}: a model in 4 bits cannot be trained itself"
        yield Check("stop", message, "set use_peft: true, which trains a LoRA adapter beside it")


def _deepspeed(config: Config, here: Path) -> Iterator[Check]:
    setting = config.find("deepspeed")
    if setting is None or not isinstance(setting.value, str) or setting.value.lstrip().startswith("{"):
        return
    try:
        json.loads((here / setting.value).read_bytes())
    except (ValueError, RecursionError) as error:
        yield Check("stop", f"{setting.value}: this is not JSON: {error}", "fix the file")
    except OSError as error:
        message = f"{config.place(setting)}: deepspeed: {setting.value} cannot be read: {error.strerror}"
        yield Check("stop", message, "name a DeepSpeed config beside this one, or use accelerate_config: zero3")


def _accelerate(config: Config, site: Path, here: Path) -> Iterator[Check]:
    setting = config.find("accelerate_config")
    if setting is None:
        return
    place = config.place(setting)
    if (path := here / setting.text()).is_file():
        try:
            if not isinstance(yaml.safe_load(path.read_bytes()), dict):
                raise ValueError("no mapping")
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            yield Check("stop", f"{place}: {setting.text()} is no accelerate config: {error}", "fix the file")
        return
    names = sorted(file.stem for file in (site / "trl/accelerate_configs").glob("*.yaml"))
    if setting.text() not in names:
        close = nearest(setting.text(), names)
        message = f"{place}: {setting.text()} is neither a file nor one of TRL's configs"
        advice = f"give one of {', '.join(names)}, or a file" if names else "this TRL has none: give a file"
        yield Check("stop", message, f"did you mean {close}?" if close else advice)
    if config.get("deepspeed"):
        yield Check("stop", f"{place}: deepspeed and accelerate_config are both set", "keep one of the two")


def _wandb(config: Config, environ: Mapping[str, str], root: Path) -> Iterator[Check]:
    setting = config.find("report_to")
    values = setting.value if setting is not None else ()
    if setting is None or not {"wandb", "all"} & set(map(str, values if isinstance(values, list) else [values])):
        return
    environ = variables(config, environ)
    if environ.get("WANDB_MODE") in ("offline", "disabled", "dryrun"):
        return
    if setting.text() == "all":
        return
    try:
        key = environ.get("WANDB_API_KEY") or (root / KEY).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        key = ""
    if not key:
        message = f"{config.place(setting)}: report_to is wandb, and there is no key for it"
        yield Check("stop", message, "put it into ~/.config/vetted/wandb_api_key, or set WANDB_MODE=offline")


def _true(value: object) -> bool:
    return str(value).lower() in ("true", "yes", "1")
