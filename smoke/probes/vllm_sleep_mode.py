"""Does vLLM wake up with the policy's weights when it sleeps between generations?

Catches failures of sleep mode, which frees the GPU for the optimizer by discarding vLLM's weights: a trainer that only
wakes vLLM up samples gibberish ("!!!!!!") without an error, at the latest when it generates twice without a step in
between. And a trainer that then loads the checkpoint instead of the policy.

Trains with vLLM colocated and its sleep mode on, with two generations in each step. At every generation the weights
inside vLLM are compared with the policy's, bit by bit after rounding to vLLM's dtype. Needs one process and one GPU:
vLLM has no sleep mode on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smoke.kit import adapter, colocate, grpo, tiny
from smoke.probe import Bound, Context, Probe, Reading, Skip

GENERATIONS = 2 * grpo.STEPS
ON_A_CPU = Skip("vLLM has its sleep mode only on GPUs", device="cpu")
NO_SLEEP_MODE = Skip("this TRL has no sleep mode for vLLM", versions={"trl": "<0.23"})

PROBE = Probe(
    matters="completions come from no policy at all; the run continues, and learns to make gibberish less likely",
    bounds=(
        Bound(
            "stale_tensors",
            "how many of vLLM's 17 tensors were not the policy's, over all generations: each comes after a sync. 68 "
            "with the code of TRL 0.29, which loads the checkpoint to generate again, and a simulated sleep on a CPU",
            "tensors",
            equals=0,
            headline=True,
        ),
        Bound("generations", "two for each step, each with weights to compare", "generations", equals=GENERATIONS),
        Bound("sleeps", "one after each generation; without any, this proves nothing", at_least=GENERATIONS),
        grpo.MOVED,
    ),
    links=(
        "https://github.com/vllm-project/vllm/issues/29341",
        "https://github.com/huggingface/trl/pull/4571",
        "https://github.com/huggingface/trl/pull/5147",
    ),
    needs=("torch", "transformers", "datasets", "trl", "vllm"),
    skips=(ON_A_CPU, NO_SLEEP_MODE, adapter.SERVER_ONLY),
    gpus=1,
    timeout_s=300,
)


def run(context: Context) -> Iterator[Reading]:
    """Train, record every sleep, and compare the weights at every generation."""
    if context.device != "cuda":
        raise ON_A_CPU()
    if not {"vllm_enable_sleep_mode", "steps_per_generation"} <= adapter.known_options():
        raise NO_SLEEP_MODE()
    colocate.register("qwen2")
    with colocate.engine_once(context):
        trainer = colocate.make_trainer(
            context,
            tiny.save(context.directory / "model", context.seed),
            vllm_enable_sleep_mode=True,
            gradient_accumulation_steps=2,
            steps_per_generation=1,
        )
    before = grpo.snapshot(trainer.model)
    engine = adapter.sampler(trainer)
    comparisons = colocate.watch_weights(trainer, engine)
    sleep, sleeps = engine.sleep, []

    def note(*arguments: Any, **keywords: Any) -> Any:
        sleeps.append((arguments, keywords))
        return sleep(*arguments, **keywords)

    engine.sleep = note
    trainer.train()
    yield grpo.moved(before, trainer.model)
    yield Reading("stale_tensors", sum(len(weights.stale) for weights in comparisons), f"by generation: {comparisons}")
    yield Reading("generations", sum(weights.compared > 0 for weights in comparisons), f"by generation: {comparisons}")
    yield Reading("sleeps", len(sleeps), str(sleeps))
