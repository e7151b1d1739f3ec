"""Do two ranks take the same step as one process with the whole batch?

Catches silent errors that need several processes: advantages computed within a rank although the completions of a
prompt are spread over both, token counts that are not summed over the ranks, gradients that are summed instead of
averaged or not exchanged at all, combined with scaling for gradient accumulation. Also an evaluation that counts
samples twice, or not at all, where the ranks cannot divide them.

Trains two steps of real GRPO with two ranks and two micro-batches each on scripted completions of different lengths,
and compares gradients and updates with those of a reference in plain PyTorch (kit/reference.py) on all completions at
once. The completions of one prompt are divided among the ranks where TRL allows it, which is since 0.15. Then both
ranks go through nine samples as the Trainer does in an evaluation. Needs two processes; on GPUs, two of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from smoke.kit import extremes, parity, tiny
from smoke.probe import Bound, Context, Probe, Reading

RANKS = 2
MICRO_BATCHES = 2
LEARNING_RATE = 0.2
SAMPLES, BATCH = 9, 2  # of an evaluation
PROMPTS, GENERATIONS = 5, 2  # of another, in batches of two prompts: the last has to be filled

PROBE = Probe(
    matters="several GPUs would train something else than one, and neither loss would show it",
    bounds=(
        Bound(
            "gradient_error",
            "the relative error of the worst tensor's gradient: 1.1e-6 to 5.6e-6 over 24 seeds, the "
            "rounding of float32; 0.24 with advantages within a rank, 1 or more with gradients that are not averaged",
            at_most=1e-4,
            headline=True,
        ),
        Bound(
            "update_error",
            "the same for what plain gradient descent took off the parameters: 1.4e-5 to 3.6e-5 over 24 seeds, "
            "because it is small next to them; as large as gradient_error when broken",
            at_most=5e-4,
        ),
        Bound("ranks_differ", "after training both ranks have the same bits", "tensors", equals=0),
        Bound(
            "evaluated_wrong",
            f"of {SAMPLES} samples those that were not counted exactly once: 0 over 12 seeds; 1 when one too many is "
            "kept of what fills the last batch",
            "samples",
            equals=0,
        ),
        Bound(
            "groups_mixed",
            f"of {PROMPTS} prompts, each {GENERATIONS} times in a row, the pairs in a batch that lack one or are not "
            "of one prompt: 0 over 12 seeds; 1 or more when the last batch is not filled, or begins to be filled in "
            "the middle of a pair",
            "pairs",
            equals=0,
        ),
        Bound(
            "lost_effect",
            "what gradient_error would be, over all tensors, without half of the completions: 0.38 to 0.76 over 24 "
            "seeds. Below its bound, the comparison proves nothing",
            at_least=0.1,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/pull/2776",
        "https://github.com/huggingface/trl/issues/2617",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    ranks=RANKS,
    gpus=RANKS,
)


def run(context: Context) -> Iterator[Reading]:
    """Train on both ranks, and compare with the reference."""
    # Every rank writes its own copy, from the same seed: with torch.distributed set up, only rank 0 would write.
    model = tiny.save(context.directory / f"model-{context.rank}", context.seed)
    # Without it, the trainer takes several processes on CPUs for one.
    options: dict[str, Any] = {"use_cpu": True} if context.device == "cpu" else {}
    result = parity.train_divided(context, model, MICRO_BATCHES, LEARNING_RATE, **options)
    yield Reading("gradient_error", *extremes.outermost(result.gradients))
    yield Reading("update_error", *extremes.outermost(result.updates))
    yield Reading("lost_effect", *extremes.outermost(result.lost, least=True))
    yield parity.ranks_differ(result.after)
    yield Reading("evaluated_wrong", *_evaluated_wrong(context))
    yield Reading("groups_mixed", *_groups_mixed(context))


def _evaluated_wrong(context: Context) -> tuple[float, str]:
    """How many samples are not counted once where the Trainer collects what the ranks made of their batches."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    accelerator = Accelerator(cpu=context.device == "cpu")
    batches = accelerator.prepare(DataLoader(range(SAMPLES), batch_size=BATCH))
    counts = Counter(int(sample) for batch in batches for sample in accelerator.gather_for_metrics(batch))
    wrong = [sample for sample in range(SAMPLES) if counts[sample] != 1]
    return float(len(wrong)), ", ".join(f"sample {sample}: {counts[sample]} times" for sample in wrong)


def _groups_mixed(context: Context) -> tuple[float, str]:
    """How many groups of completions would not be of one prompt, in batches of whole groups on every rank."""
    import torch.distributed as dist
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    size = 2 * GENERATIONS
    samples = [prompt for prompt in range(PROMPTS) for _ in range(GENERATIONS)]
    accelerator = Accelerator(cpu=context.device == "cpu")
    batches = [batch.tolist() for batch in accelerator.prepare(DataLoader(samples, batch_size=size))]
    of_ranks: list[Any] = [None] * RANKS
    dist.all_gather_object(of_ranks, batches)
    groups = [
        batch[start : start + GENERATIONS] for own in of_ranks for batch in own for start in range(0, size, GENERATIONS)
    ]
    mixed = [group for group in groups if len(group) != GENERATIONS or len(set(group)) != 1]
    return float(len(mixed)), f"of the ranks {of_ranks}" if mixed else ""
