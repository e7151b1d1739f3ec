"""The context of an advisory: what must be true of a run and its machine besides the installed packages."""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from builder.base.tomlfile import Line, Table
from builder.intent.ranges import Versions

COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*(.*)")


def _option(value: object) -> object:
    if not isinstance(value, bool | int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("must be a number, true, false, a text, or a comparison with a number, such as '>=1'")
    if isinstance(value, str) and (match := COMPARISON.fullmatch(value)):
        try:
            float(match[2])
        except ValueError:
            raise ValueError(f"{value!r} compares with something that is not a number") from None
    return value


class Conditions(Table):
    """What must be true besides the packages. Every key that is present must hold; an absent one decides nothing.

    A list has alternatives. Numbers and versions are ranges, written like those of packages. `processes` are the ranks
    of one run, `gpus` those that one process can see. `gpu_model` is a whole word of the model's name: "H20" does not
    match "H200". `trainer` is a class of TRL that the script names. Of the packages in `without`, none is installed.
    `compiler` is whether a C compiler is installed. `flags` are options of the trainer, the model or the generation,
    under the names of TRL and Transformers: a value, or a comparison such as ">=1". `note` is what only a person can
    judge; with one, a match is never certain.
    """

    launcher: Annotated[list[Literal["python", "accelerate", "torchrun", "deepspeed"]], Field(min_length=1)] | None = (
        None
    )
    processes: Versions | None = None
    zero_stage: Annotated[list[Literal[0, 1, 2, 3]], Field(min_length=1)] | None = None
    quantisation: Annotated[list[Literal["4bit", "8bit"]], Field(min_length=1)] | None = None
    vllm_mode: Annotated[list[Literal["off", "in-process", "colocate", "server"]], Field(min_length=1)] | None = None
    trainer: Annotated[list[Line], Field(min_length=1)] | None = None
    without: Annotated[list[Line], Field(min_length=1)] | None = None
    gpus: Versions | None = None
    gpu_model: Annotated[list[Line], Field(min_length=1)] | None = None
    driver: Versions | None = None
    cuda: Versions | None = None
    python: Versions | None = None
    compiler: bool | None = None
    flags: dict[Line, Annotated[bool | int | float | str, BeforeValidator(_option)]] = Field(default_factory=dict)
    note: Line | None = None

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if all(value in (None, {}) for value in self.__dict__.values()):
            raise ValueError("is empty: name a condition, or leave the table out")
        return self

    def __str__(self) -> str:
        conditions = []
        for key, value in self:
            if key == "note" or value in (None, {}):
                continue
            if key == "flags":
                conditions += [f"{flag} {_text(option)}" for flag, option in self.flags.items()]
            else:
                words = " or ".join(map(str, value)) if isinstance(value, list) else _text(value)
                conditions.append(f"{key.replace('_', ' ')} {words}")
        return ", ".join([*conditions, *([self.note] if self.note else [])])


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
