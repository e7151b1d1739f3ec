"""Do TRL's helpers for generation under ZeRO-3 remove DeepSpeed's hooks, and put the same ones back?

Catches two failures: a bare model, which an evaluation or the first step passes to the helpers, has no optimizer to ask
for hooks ("'Qwen2ForCausalLM' object has no attribute 'optimizer'"), and DeepSpeed renamed the method that puts them
back ("no attribute '_register_hooks_recursively'"). Hooks that stay gather and free parameters in the middle of a
generation; hooks that do not come back leave the parameters of the next step empty.

Calls the helpers with a bare model and with a DeepSpeed engine, and compares the hooks of every module before, between
and after. Needs one process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from smoke.kit import tiny, zero
from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="generation under ZeRO-3 fails at the first step or evaluation, or leaves a model that cannot be trained",
    bounds=(
        Bound("bare_model_errors", "a bare model has no hooks of DeepSpeed: nothing to do", "errors", equals=0),
        Bound(
            "hooks_left",
            "DeepSpeed's hooks that remain after their removal, except the engine's own on the outermost module",
            "hooks",
            equals=0,
        ),
        Bound(
            "hooks_changed",
            "modules whose hooks, after they were put back, are not the same as before in the same order",
            "modules",
            equals=0,
            headline=True,
        ),
        Bound(
            "hooks", "hooks that were removed: 4 of each of 33 modules. With none, this proves nothing", at_least=100
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2782",
        "https://github.com/huggingface/trl/pull/2776",
        "https://github.com/huggingface/trl/issues/2962",
        "https://github.com/huggingface/trl/pull/2963",
        "https://github.com/deepspeedai/DeepSpeed/pull/6847",
        "https://github.com/huggingface/open-r1/issues/145",
    ),
    needs=("torch", "transformers", "trl", "deepspeed"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Call the helpers with a model, then with its engine, and compare the hooks."""
    from trl.models.utils import add_hooks, remove_hooks

    model = tiny.make_model(context.seed)
    errors = [text for helper in (remove_hooks, add_hooks) if (text := _error(helper, model))]
    yield Reading("bare_model_errors", len(errors), "; ".join(errors))

    engine = _make_engine(context, model)
    before = _hooks(engine.module)
    remove_hooks(engine)
    between = _hooks(engine.module)
    add_hooks(engine)
    after = _hooks(engine.module)
    left = [f"{name}: {hook}" for name, hooks in between.items() for hook in hooks if name]
    changed = [f"{name}: {before[name]}, then {after[name]}" for name in before if before[name] != after[name]]
    yield Reading("hooks", sum(map(len, before.values())) - sum(map(len, between.values())))
    yield Reading("hooks_left", len(left), "; ".join(left))
    yield Reading("hooks_changed", len(changed), "; ".join(changed))


def _error(helper: Callable[[Any], None], model: Any) -> str:
    """What calling the helper raises, in words, or ""."""
    try:
        helper(model)
    except Exception as error:
        return f"{helper.__name__}: {type(error).__name__}: {error}"
    return ""


def _make_engine(context: Context, model: Any) -> Any:
    """A DeepSpeed engine under ZeRO-3, of one process."""
    import deepspeed
    import torch
    import torch.distributed as dist

    zero.no_compiled_collectives()
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    dist.init_process_group("nccl" if context.device == "cuda" else "gloo")
    numbers = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": 0.0}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={**zero.config(3), **numbers})
    return engine


def _hooks(model: Any) -> dict[str, list[str]]:
    """DeepSpeed's hooks of every module, by the module's name: before and after its forward pass, in their order."""
    return {
        name: [
            f"{when} {hook.__qualname__.rpartition('.')[2]}"
            for when, hooks in (("before", module._forward_pre_hooks), ("after", module._forward_hooks))
            for hook in hooks.values()
            if hook.__module__.startswith("deepspeed.")
        ]
        for name, module in model.named_modules()
    }
