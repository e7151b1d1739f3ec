"""Does GRPO train with vLLM in the same process, and does vLLM sample each step from the policy of that step?

Catches the failures of a run with colocated vLLM: no step at all (vLLM's CPU path repacks linear weights and drops what
a sync would load into; calls that hang or that a release renamed), and, silently, completions sampled from an older
policy than the one they train. Such a run continues, and gets a little worse at every step.

Trains with vLLM colocated. At every generation the weights inside vLLM are compared with the policy's at that moment,
bit by bit after rounding to vLLM's dtype. How the weights get there is the question of weights-reach-sampler. Needs one
process; on a GPU, one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from smoke.kit import adapter, colocate, extremes, grpo, speed, tiny
from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="if the sampler keeps old weights, every later step learns from a policy that no longer exists",
    bounds=(
        Bound(
            "stale_tensors",
            "how many of vLLM's 17 tensors were not the policy's, over the three generations: each comes after a sync. "
            "34 when they stay as they were loaded",
            "tensors",
            equals=0,
            headline=True,
        ),
        Bound("generations", "one for each step, each with weights to compare", "generations", equals=grpo.STEPS),
        Bound(
            "training_diff",
            "the largest difference that the trainer itself saw between vLLM's log-probabilities and its own; 0.014 to "
            "0.034 over 48 seeds; 2.9 or more without a sync, 0.56 when only the output layer is stale; 0 where TRL "
            "does not compare",
            "nats",
            at_most=0.1,
        ),
        grpo.MOVED,
        *grpo.BOUNDS,
        *speed.BOUNDS,
    ),
    links=(
        "https://github.com/huggingface/trl/pull/3394",
        "https://github.com/huggingface/trl/pull/2952",
        "https://github.com/huggingface/trl/issues/4159",
    ),
    needs=("torch", "transformers", "datasets", "trl", "vllm"),
    skips=(adapter.SERVER_ONLY,),
    gpus=1,
    timeout_s=300,
)


def run(context: Context) -> Iterator[Reading]:
    """Train, and compare the weights at every generation."""
    colocate.register("qwen2")
    reward = grpo.Reward()
    model = tiny.save(context.directory / "model", context.seed)
    with colocate.engine_once(context):
        trainer = colocate.make_trainer(context, model, reward=reward)
    before = grpo.snapshot(trainer.model)
    comparisons = colocate.watch_weights(trainer, adapter.sampler(trainer))
    seconds = speed.watch(context, trainer)
    trainer.train()
    yield from grpo.check(trainer, reward)
    yield grpo.moved(before, trainer.model)
    yield from speed.readings(context, trainer, reward, seconds)
    yield Reading("stale_tensors", sum(len(weights.stale) for weights in comparisons), f"by generation: {comparisons}")
    yield Reading("generations", sum(weights.compared > 0 for weights in comparisons), f"by generation: {comparisons}")
    logged = [step.get("sampling/sampling_logp_difference/max", 0.0) for step in trainer.state.log_history]
    yield Reading("training_diff", extremes.largest(logged, default=0.0), str(logged))
