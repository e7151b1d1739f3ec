"""Do TRL's helpers take DeepSpeed's hooks off for generation under ZeRO-3, and put the same ones back?

It exists for two failures of these helpers. Asked about a model that is no engine, as evaluation and generation ask
before the first step, they looked for its optimizer ("'Qwen2ForCausalLM' object has no attribute 'optimizer'"). On an
engine they called a method that DeepSpeed has renamed ("no attribute '_register_hooks_recursively'"). Hooks that stay
on make generation slow; hooks that do not come back leave parameters divided when they are used.

Calls the helpers on a bare model, then on a ZeRO-3 engine, and counts the hooks of every module before, between and
after. Needs one process.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from smoke import tiny, zero
from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="generation under ZeRO-3 fails, crawls, or leaves a model behind that no longer trains",
    bounds=(
        Bound("bare_model_errors", "helpers that fail on a model without an engine, of two", "helpers", equals=0),
        Bound("engine_errors", "helpers that fail on a ZeRO-3 engine, of two", "helpers", equals=0),
        Bound(
            "hooks_at_first",
            "without any at first, nothing would be shown; 128 with DeepSpeed 0.19.8",
            "hooks",
            at_least=10,
        ),
        Bound("hooks_left", "the share of DeepSpeed's hooks that removing them leaves", equals=0),
        Bound("modules_differ", "modules with more or fewer hooks afterwards", "modules", equals=0, headline=True),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2782",
        "https://github.com/huggingface/trl/pull/2776",
        "https://github.com/huggingface/trl/issues/2962",
        "https://github.com/deepspeedai/DeepSpeed/pull/6847",
    ),
    needs=("torch", "transformers", "trl", "deepspeed"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Use the helpers as generation does."""
    from trl.models.utils import add_hooks, remove_hooks

    bare = tiny.make_model(context.seed)
    failed = [_failure(helper, bare) for helper in (remove_hooks, add_hooks)]
    yield Reading("bare_model_errors", sum(map(bool, failed)), "; ".join(filter(None, failed)))

    engine = _engine(context)
    first = _hooks(engine)
    failed = [_failure(remove_hooks, engine)]
    between = _hooks(engine)
    failed += [_failure(add_hooks, engine)]
    after = _hooks(engine)
    yield Reading("engine_errors", sum(map(bool, failed)), "; ".join(filter(None, failed)))
    yield Reading("hooks_at_first", sum(first.values()))
    yield Reading("hooks_left", sum(between.values()) / sum(first.values()), f"{between}")
    differ = [f"{name}: {first[name]} became {after[name]}" for name in first if first[name] != after[name]]
    yield Reading("modules_differ", len(differ), "; ".join(differ))


def _failure(helper: Callable[[Any], None], model: Any) -> str:
    try:
        helper(model)
    except AttributeError as error:
        traceback.print_exc()
        return f"{helper.__name__}: {error}"
    return ""


def _engine(context: Context) -> Any:
    """A ZeRO-3 engine of one process around a tiny model."""
    import deepspeed
    import torch

    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    if context.device == "cpu":
        zero.no_compiled_collectives()
        deepspeed.init_distributed("gloo")
    model = tiny.make_model(context.seed)
    config = {**zero.config(3), "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
    del config["gradient_clipping"]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def _hooks(engine: Any) -> dict[str, int]:
    """How many hooks each module has around its forward pass; the outermost has some of the engine's own."""
    return {
        name: len(module._forward_hooks) + len(module._forward_pre_hooks)
        for name, module in engine.module.named_modules()
        if name
    }
