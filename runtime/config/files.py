"""Models and datasets: are they there, may they be read, and do their rows fit?"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runtime.check import Check
from runtime.config import rows
from runtime.config.names import nearest
from runtime.config.source import Config, Setting

# File endings -> the builder of `datasets` that reads them.
BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
NETWORK = "vetted use --network, then start again: this container has no network"


@dataclass
class Data:
    """What is known of a dataset: its columns, once a file of it was read."""

    columns: set[str] = field(default_factory=set)


def model(config: Config, environ: Mapping[str, str], here: Path) -> Iterator[Check]:
    """Checks of `model_name_or_path`."""
    setting = config.find("model_name_or_path")
    if setting is None or setting.value is None:
        yield Check("stop", "there is no model: model_name_or_path is not set", "name a folder or a model of the Hub")
        return
    name = setting.text()
    path = here / name
    if not _is_path(name, path):
        yield from _hub(config, setting, "models", environ, here)
        return
    if trouble := _trouble(path, here):
        yield Check("stop", f"{config.place(setting)}: {setting.name}: {name} {trouble[0]}", trouble[1])
    elif not any((path / file).is_file() for file in ("config.json", "adapter_config.json")):
        message = f"{config.place(setting)}: {name} is no model: it has no config.json"
        yield Check("stop", message, "name the folder that save_pretrained wrote")


def dataset(config: Config, script: str, environ: Mapping[str, str], here: Path, data: Data) -> Iterator[Check]:
    """Checks of `dataset_name`. Fills `data`."""
    setting = config.find("dataset_name")
    if setting is None or setting.value is None:
        if not config.get("datasets"):
            yield Check("stop", "there is no dataset: dataset_name is not set", "name a file, a folder or a dataset")
        return
    name = setting.text()
    path = here / name
    place = config.place(setting)
    if not _is_path(name, path):
        yield from _hub(config, setting, "datasets", environ, here)
    elif trouble := _trouble(path, here):
        yield Check("stop", f"{place}: dataset_name: {name} {trouble[0]}", trouble[1])
    elif (path / "state.json").is_file() and (path / "dataset_info.json").is_file():
        message = f"{place}: {name} was written by save_to_disk, which `load_dataset` does not read"
        yield Check("stop", message, 'write it again, such as with dataset.to_json("train.jsonl")')
    else:
        files = sorted(file for file in path.rglob("*") if file.suffix in BUILDERS) if path.is_dir() else [path]
        if not files or files[0].suffix not in BUILDERS:
            yield Check("stop", f"{place}: {name} has no data", f"give a file that ends in {', '.join(BUILDERS)}")
        elif path.is_file() and (split := config.get("dataset_train_split", "train")) != "train":
            yield Check("stop", f"{place}: a file has the split train only, not {split}", "remove dataset_train_split")
        elif path.is_file() and config.get("eval_strategy", "no") not in ("no", False):
            message = f"{place}: eval_strategy needs a split for evaluation, and a file has only train"
            yield Check("stop", message, "give a folder with train.jsonl and test.jsonl")
        elif files[0].suffix == ".jsonl":
            shown = name if path.is_file() else f"{name}/{files[0].relative_to(path)}"
            yield from rows.look(files[0], shown, script, data.columns)


def _is_path(name: str, path: Path) -> bool:
    """Whether a name means a file or folder: it is there, or it can be no id of the Hub."""
    try:
        there = path.exists()
    except OSError:
        there = True
    ending = Path(name).suffix in BUILDERS
    return there or ending or name.startswith((".", "/", "~")) or HUB_ID.fullmatch(name) is None


def _trouble(path: Path, here: Path) -> tuple[str, str] | None:
    """Why a file or folder cannot be read, and what to do."""
    try:
        if path.is_dir():
            next(path.iterdir(), None)
        else:
            path.open("rb").close()
    except FileNotFoundError:
        if close := _close(path, here):
            return "is not there", f"did you mean {close}?"
        return "is not there", "name it relative to the folder where you ran the command: the container sees that only"
    except PermissionError:
        return f"may not be read by user {os.getuid()}:{os.getgid()}", f"chmod -R a+rX {path.name}"
    except OSError as error:
        return f"cannot be read: {error.strerror}", "look at it on the host"
    return None


def _close(path: Path, here: Path) -> str | None:
    """What is there in its place, with a name that is nearly the same."""
    try:
        close = nearest(path.name, (entry.name for entry in path.parent.iterdir()))
    except OSError:
        return None
    return os.path.relpath(path.parent / close, here) if close else None


def _hub(config: Config, setting: Setting, kind: str, environ: Mapping[str, str], here: Path) -> Iterator[Check]:
    if environ.get("HF_HUB_OFFLINE") != "1":
        return
    name = setting.text()
    if cached(kind, name, environ).is_dir():
        return
    if kind == "datasets" and _prepared(name, environ):
        return
    message = f"{config.place(setting)}: {name} is no folder here, and not in the Hub's cache"
    close = _close(here / name, here)
    yield Check("stop", message, f"did you mean {close}? if not: {NETWORK}" if close else NETWORK)


def cached(kind: str, name: str, environ: Mapping[str, str]) -> Path:
    """Where the Hub's cache keeps a model or dataset. A short name such as "gpt2" or "squad" has no owner."""
    home = Path(environ.get("HF_HUB_CACHE") or Path(environ.get("HF_HOME") or "~/.cache/huggingface") / "hub")
    return home.expanduser() / f"{kind}--{name.replace('/', '--')}"


def _prepared(name: str, environ: Mapping[str, str]) -> bool:
    """Whether `datasets` keeps the Arrow files of a dataset: without a network it reads those."""
    home = environ.get("HF_DATASETS_CACHE") or Path(environ.get("HF_HOME") or "~/.cache/huggingface") / "datasets"

    def plain(text: str) -> str:  # the folder is written in snake case
        return text.replace("_", "").casefold()

    try:
        folders = [folder.name for folder in Path(home).expanduser().iterdir()]
    except OSError:
        return False
    return plain(name.replace("/", "___")) in map(plain, folders)
