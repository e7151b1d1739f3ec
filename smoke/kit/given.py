"""What the caller wrote beside the probes of a user's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = "own.json"


def read(probe: Path) -> dict[str, Any]:
    """`row`: levels by factor. `model`: a config.json, or {}. `ranks`: the processes of the run, two at most."""
    content: dict[str, Any] = json.loads(probe.with_name(FILE).read_text(encoding="utf-8"))
    return content
