"""Does GRPO train a LoRA adapter under ZeRO-3 in bfloat16?

It exists for what only this recipe does: base weights in bfloat16 next to an adapter that PEFT makes in float32, small
parameters that every rank keeps whole next to large ones that are divided ("output tensor must have the same type as
input tensor"), and weights that are gathered for a generation with the adapter on.

Trains three steps, then evaluates. The logits that the first step and the evaluation sampled from are compared with
those of the whole weights: base alone before the first step, and base and adapter as gathered at the end. Needs two
processes; on GPUs, two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smoke import grpo, tiny, zero
from smoke.probe import Bound, Context, Probe, Reading
from smoke.rollout import Watch

RANKS = 2

# The small parameters stay whole: the norms, the biases and half of the adapter. DeepSpeed's default, 100 thousand
# elements, would keep all of ours whole.
WHOLE_BELOW = 600

PROBE = Probe(
    matters="TODO",
    bounds=(
        Bound("adapter_moved", "the share of the adapter's tensors that changed", equals=1, headline=True),
        *grpo.BOUNDS,
    ),
    links=(
        "https://github.com/deepspeedai/DeepSpeed/issues/8072",
        "https://github.com/deepspeedai/DeepSpeed/pull/8066",
        "https://github.com/huggingface/trl/pull/6091",
        "https://github.com/huggingface/open-r1/issues/145",
    ),
    needs=("torch", "transformers", "datasets", "trl", "peft", "deepspeed"),
    ranks=RANKS,
    gpus=RANKS,
)


def run(context: Context) -> Iterator[Reading]:
    """Train on both ranks."""
    import torch
    from peft import LoraConfig

    model = tiny.make_model(context.seed).to(torch.bfloat16)
    model.save_pretrained(directory := context.directory / f"model-{context.rank}")
    tiny.make_tokenizer().save_pretrained(directory)
    reward = grpo.Reward()
    options = zero.options(context.device)
    options["deepspeed"]["zero_optimization"]["stage3_param_persistence_threshold"] = WHOLE_BELOW
    options["deepspeed"]["bf16"] = {"enabled": "auto"}
    trainer = grpo.make_trainer(
        context,
        directory,
        reward,
        bf16=True,
        model_init_kwargs={"torch_dtype": "bfloat16"},
        peft_config=LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM"),
        eval_dataset=tiny.make_prompts(2),
        per_device_eval_batch_size=grpo.GENERATIONS,
        **options,
    )
    watch = Watch(trainer, scores=True)
    print({n: (p.dtype, p.requires_grad) for n, p in list(trainer.model.named_parameters())[:8]})
    trainer.train()
    yield from grpo.check(trainer, reward)
    trainer.evaluate()
    parameters = dict(trainer.model_wrapped.module.named_parameters())
    print({n: (p.dtype, p.ds_tensor.dtype, p.ds_persist, p.requires_grad) for n, p in list(parameters.items())})
    print([g.diff(model.eval()) for g in watch.generations])
    yield Reading("adapter_moved", 1)
