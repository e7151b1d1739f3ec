"""What the doctor is asked: an environment, what is known of the run and the machine, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from doctor.read.context import Context
from doctor.read.environment import Environment
from doctor.read.machine import Machine


@dataclass
class Case:
    environment: Environment
    context: Context = field(default_factory=Context)
    machine: Machine = field(default_factory=Machine)
    error: str = ""
    data: dict[str, Any] = field(default_factory=dict)  # doctor/know/data.json
    apis: dict[str, dict[str, Any]] = field(default_factory=dict)  # doctor/know/apis.json.gz
    fixes: dict[str, list[list[Any]]] = field(default_factory=dict)  # doctor/know/fixes.json
