"""Does rounding explain how far vLLM and trainer are apart? A few rows of the step are scored again to measure it.

Once as in the loss, and once without dropout in float32: so far rounding takes the trainer. Once more in vLLM's type,
if that is another one: so far it takes vLLM, about. All of it is after the update, when activations and gradients are
gone, and weights are converted one at a time. Random states, modes and weights stay as they were.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, MutableMapping
from typing import Any

from . import engine
from .checks import CHECKS
from .hooks import LOGPS, logps_and_entropies
from .loss import has_sampler

ROWS = 4  # that are scored again
SLACK = 1.5  # other kernels round otherwise, and other rows
TIMES = 10  # that rounding is measured in a run: each takes as long as a few rows of a step
PARTS = ("__get__", "__getitem__", "embedding")  # what takes a part of a parameter, or its type: the rest may be large
BOUND = next(check.at_most for check in CHECKS if check.column == "sampler_unexplained")


class Rounding:
    """The rows that can be scored again, and the distance that rounding made when it was last measured."""

    def __init__(self) -> None:
        self.rows: tuple[Any, ...] = ()
        self.distance = 0.0
        self.times = 0
        self.reason = ""  # why it could not be measured

    def keep(self, inputs: Any, arguments: tuple[Any, ...]) -> None:
        """Keep the first rows of a step's first loss: what TRL scored, and which tokens count."""
        plain = all(inputs.get(name) is None for name in ("pixel_values", "image_grid_thw", "num_images"))
        if self.rows or not plain or len(arguments) < 4 or not has_sampler(inputs):
            return
        _, ids, attention, length = arguments[:4]
        mask = inputs["completion_mask"]
        mask = mask * inputs["tool_mask"] if inputs.get("tool_mask") is not None else mask
        self.rows = ids[:ROWS], attention[:ROWS], length, mask[:ROWS].bool()

    def judge(self, numbers: MutableMapping[str, float], trainer: Any) -> None:
        """Say of the distance between vLLM and trainer whether rounding explains it."""
        rows, self.rows = self.rows, ()
        apart = numbers.get("sampler_diff")
        if apart is None:
            return
        equal = numbers.get("engine_compared", 0.0) > 0 and numbers.get("engine_stale") == 0
        if equal and apart > max(BOUND, SLACK * self.distance) and rows and not self.reason and self.times < TIMES:
            self._measure(trainer, rows)
        if self.distance:
            numbers["sampler_noise"] = self.distance
        explained = equal and BOUND < apart <= SLACK * self.distance
        numbers["sampler_unexplained"] = 0.0 if explained else apart
        numbers["sampler_rounding"] = apart if explained else 0.0

    def _measure(self, trainer: Any, rows: tuple[Any, ...]) -> None:
        self.times += 1
        if getattr(trainer.args, "torch_compile", False):
            self.reason = "the model is compiled for its own type"
            return
        try:
            self.distance = measured(trainer, rows)
        except Exception as error:  # no memory, or kernels that know no float32: the distance stays unexplained
            self.reason = f"{type(error).__name__}: {error}".splitlines()[0]


def measured(trainer: Any, rows: tuple[Any, ...]) -> float:
    """How far rounding and dropout take the trainer, and about how far rounding takes vLLM: nats a token, together."""
    import torch

    model = trainer.accelerator.unwrap_model(trainer.model)
    theirs = _type_of(engine.model_of(engine.owner(trainer).llm))
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.no_grad(), torch.random.fork_rng(devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = _scored(trainer, model, rows)
        with _without_dropout(model):
            with _as_if_loaded_in(torch.float32):
                exact = _scored(trainer, model, rows)
            with _as_if_loaded_in(theirs):
                other = exact if theirs == torch.float32 else _scored(trainer, model, rows)
    mask = rows[-1]
    apart = ((own - exact).abs() + (other - exact).abs()).masked_fill(~mask, 0.0)
    return float(apart.sum() / mask.sum().clamp(min=1))


def _scored(trainer: Any, model: Any, rows: tuple[Any, ...]) -> Any:
    """Log-probabilities of the rows as the trainer computes them; one after the other, which takes little memory."""
    import torch

    ids, attention, length, _ = rows
    method = next(getattr(trainer, name) for name in LOGPS if hasattr(trainer, name))
    method = getattr(method, "__wrapped__", method)
    each = [method(model, ids[k : k + 1], attention[k : k + 1], length) for k in range(len(ids))]
    return torch.cat([logps_and_entropies(result)[0].float() for result in each])


def _type_of(model: Any) -> Any:
    """The type that most of vLLM's tensors have."""
    import torch

    kinds = [tensor.dtype for _, tensor in model.named_parameters()]
    known = [kind for kind in kinds if kind in (torch.bfloat16, torch.float16)]
    return max(set(known), key=known.count) if known else torch.float32


@contextlib.contextmanager
def _without_dropout(model: Any) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextlib.contextmanager
def _as_if_loaded_in(kind: Any) -> Iterator[None]:
    """Have every parameter converted where it is used, and no autocast convert what comes of it."""
    import torch
    from torch.overrides import TorchFunctionMode

    def converted(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return kind if value.is_floating_point else value
        return value.to(kind) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    def used(value: Any) -> Any:
        return converted(value) if isinstance(value, torch.nn.Parameter) else value

    class Conversion(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            more = kwargs or {}
            if getattr(function, "__name__", "") in PARTS:
                result = function(*args, **more)
                return converted(result) if any(isinstance(value, torch.nn.Parameter) for value in args) else result
            return function(*map(used, args), **{name: used(value) for name, value in more.items()})

    whole = {name: vars(torch.autocast)[name] for name in ("__enter__", "__exit__")}
    torch.autocast.__enter__ = lambda self: self
    torch.autocast.__exit__ = lambda *_: None
    try:
        with Conversion():
            yield
    finally:
        for name, method in whole.items():
            setattr(torch.autocast, name, method)
