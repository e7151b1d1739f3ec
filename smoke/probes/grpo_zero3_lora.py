"""Does GRPO train a LoRA adapter under ZeRO-3 in bfloat16?

Catches failures of this recipe only: base weights in bfloat16 next to an adapter that PEFT creates in float32, small
parameters that every rank keeps whole next to large ones that are divided ("output tensor must have the same type as
input tensor"), and weights that are gathered for a generation with the adapter on.

Trains three steps, then evaluates. The logits that the first step and the evaluation sampled from are compared with
those of the whole weights: the base alone before the first step, and base and adapter as gathered at the end. Needs two
processes; on GPUs, two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smoke.kit import extremes, grpo, tiny, zero
from smoke.kit.rollout import Recorder
from smoke.probe import Bound, Context, Probe, Reading

RANKS = 2

# The small parameters stay whole: the norms, the biases and half of the adapter. DeepSpeed's default, 100 thousand
# elements, would keep all of ours whole.
WHOLE_BELOW = 600

PROBE = Probe(
    matters="large models are trained like this; it fails, or learns from samples of other weights",
    bounds=(
        Bound(
            "adapter_moved",
            "the share of the adapter's tensors that changed; the optimizer updates all of them",
            equals=1,
            headline=True,
        ),
        Bound("base_moved", "the base is frozen: its bits stay", "tensors", equals=0),
        Bound(
            "whole",
            "the share of the tensors that every rank keeps whole, being small: of base and adapter alike, next to "
            "others that are divided",
            equals=0.6,
        ),
        Bound("ranks_differ", "both ranks gather the same bits", "tensors", equals=0),
        Bound(
            "first_generation_diff",
            "between the log-probabilities that the first step sampled from and those of the whole weights, at most; "
            "0.024 to 0.050 over 12 seeds, the rounding of bfloat16",
            "nats",
            at_most=0.15,
        ),
        Bound("last_generation_diff", "the same of the evaluation, after all updates", "nats", at_most=0.15),
        Bound(
            "update_effect",
            "last_generation_diff if the evaluation sampled from the base alone: 0.77 to 2.8 over 12 seeds. Below its "
            "bound, it proves nothing",
            "nats",
            at_least=0.3,
        ),
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
    """Train on both ranks, then check the gathered weights and those sampled from."""
    import torch
    import torch.distributed as dist
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM")
    model = tiny.make_model(context.seed).to(torch.bfloat16)
    model.save_pretrained(directory := context.directory / f"model-{context.rank}")
    tiny.make_tokenizer().save_pretrained(directory)
    policy = get_peft_model(model.float(), lora).eval()  # whole, so before the trainer turns ZeRO-3 on
    reward = grpo.Reward()
    options = zero.options(context.device)
    options["deepspeed"]["zero_optimization"]["stage3_param_persistence_threshold"] = WHOLE_BELOW
    options["deepspeed"]["bf16"] = {"enabled": "auto"}
    trainer = grpo.make_trainer(
        context,
        directory,
        reward,
        bf16=True,
        use_cpu=context.device == "cpu",
        peft_config=lora,
        eval_dataset=tiny.make_prompts(2),
        per_device_eval_batch_size=grpo.GENERATIONS,
        **options,
    )
    before = zero.gather(dict(trainer.model.named_parameters()))
    recorder = Recorder(trainer, scores=True)
    trainer.train()
    yield from grpo.check(trainer, reward)
    trainer.evaluate()

    parameters = dict(trainer.model_wrapped.module.named_parameters())
    yield Reading("whole", sum(p.ds_persist for p in parameters.values()) / len(parameters))
    after = zero.gather(parameters)
    adapter = {name for name, parameter in parameters.items() if parameter.requires_grad}
    still = {name for name in after if torch.equal(after[name], before[name].to(after[name].dtype))}
    yield Reading("adapter_moved", 1 - len(adapter & still) / len(adapter), ", ".join(sorted(adapter & still)))
    moved = after.keys() - still - adapter
    yield Reading("base_moved", len(moved), ", ".join(sorted(moved)))

    first, update = recorder.generations[0].diff(policy), recorder.generations[-1].diff(policy)
    policy.load_state_dict(after)
    last = recorder.generations[-1].diff(policy)
    ranks: list[Any] = [None] * RANKS
    dist.all_gather_object(ranks, (after, first, last, update))
    wholes, firsts, lasts, updates = zip(*ranks, strict=True)
    yield Reading("first_generation_diff", extremes.largest(firsts), f"of the ranks {firsts}")
    yield Reading("last_generation_diff", extremes.largest(lasts), f"of the ranks {lasts}")
    yield Reading("update_effect", extremes.smallest(updates), f"of the ranks {updates}")
    differ = [name for name in after if not torch.equal(wholes[0][name], wholes[1][name])]
    yield Reading("ranks_differ", len(differ), ", ".join(differ))
