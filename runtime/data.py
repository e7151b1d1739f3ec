"""Datasets by file: `dataset_name: train.jsonl` means that file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtime.config.files import BUILDERS


def read_files() -> None:
    """Make `datasets.load_dataset` take the name of a file; it takes folders and names of the Hub only.

    Call it before TRL is imported: some releases import the function by name.
    """
    import datasets

    load = datasets.load_dataset

    def load_dataset(path: str, *args: Any, **kwargs: Any) -> Any:
        file = Path(path)
        if file.suffix in BUILDERS and file.is_file() and not args and not kwargs.get("data_files"):
            kwargs.pop("name", None)  # a file has no configurations
            return load(BUILDERS[file.suffix], data_files=str(file), **kwargs)
        return load(path, *args, **kwargs)

    datasets.load_dataset = load_dataset
