"""How much GPU memory a run takes, roughly: weights, gradients, optimizer, activations, logits, vLLM.

`python -m benchmarks.memory` compares it with published peaks.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.config.architecture import Architecture

# A layer that is computed again for its backward pass holds its activations, and gradients of most of them.
AGAIN = 1.85
# Bytes of a logit, in bfloat16: itself, its copy in float32, the log-probability, and the gradients of them.
LOGIT = 16


@dataclass(frozen=True)
class Job:
    """What one GPU has to hold. Sizes are bytes of one number; `ranks` divide what they are named for."""

    model: Architecture
    tokens: int  # of one pass: padded rows x length
    scored: int = 0  # positions whose logits are computed as a whole
    columns: int | None = None  # of the logits that are there at a time; None for the whole vocabulary
    adapter: int = 0  # parameters of LoRA; 0 trains all
    weight: float = 4
    linear: float | None = None  # of a weight in a layer, where those are quantised
    gradient: float = 4
    state: float = 8  # of the optimizer
    step: float = 0  # what the optimizer needs only in its step
    activation: int = 2
    residual: int = 2  # what a layer hands to the next one
    cast: float = 0  # a copy of the weights in another type, for a pass
    weight_ranks: int = 1
    gradient_ranks: int = 1
    state_ranks: int = 1
    gathered: bool = False  # layers are put together from all ranks, one after another
    buckets: float = 0  # bytes for the exchange of gradients
    accumulated: bool = True  # gradients of earlier passes are there in a pass
    checkpointing: bool = True
    kept: bool = True  # False: what checkpointing keeps lies in the memory of the host
    reference: float = 0  # bytes of a weight of a reference model
    cached: int = 0  # tokens of the cache for generation
    vllm: float = 0  # bytes
    sleeps: bool = False  # vLLM takes its share only while it generates

    @property
    def trained(self) -> int:
        return self.adapter or self.model.parameters


def peak(job: Job) -> dict[str, float]:
    """The parts of the phase that takes most, in bytes."""
    model = job.model
    weights = (_weights(job) + job.adapter * job.gradient) / job.weight_ranks
    together = _together(job) if job.gathered else 0.0
    always = {
        "weights": weights + together + job.cast * model.parameters,
        "optimizer": job.trained * job.state / job.state_ranks,
        "reference": job.reference * model.parameters / job.weight_ranks,
        "vLLM": 0.0 if job.sleeps else job.vllm,
    }
    gradients = job.trained * job.gradient / job.gradient_ranks + job.buckets
    kept, again = _activations(job)
    logits = job.scored * (job.columns or model.vocabulary) * LOGIT
    first = gradients if job.accumulated else 0.0
    # While gradients come, activations go. One of the two is there as a whole.
    backward = {"gradients": gradients, "activations": again + (kept if job.accumulated else 0.0)}
    if not job.accumulated and kept > gradients:
        backward = {"gradients": 0.0, "activations": kept + again}
    phases: list[dict[str, float]] = [
        backward,
        {"gradients": first, "activations": kept, "logits": logits},
        {"gradients": gradients, "optimizer": always["optimizer"] + job.trained * job.step / job.state_ranks},
        {"generation": job.cached * 2.0 * model.keys * model.layers * job.activation, "vLLM": job.vllm},
    ]
    return max(({**always, **phase} for phase in phases), key=lambda parts: sum(parts.values()))


def _weights(job: Job) -> float:
    model = job.model
    if job.linear is None:
        return model.parameters * job.weight
    return (model.parameters - model.embeddings) * job.linear + model.embeddings * job.weight


def _together(job: Job) -> float:
    """Two layers and the embeddings, whole; where they are trained, with their gradients in two types."""
    model = job.model
    largest = max(model.largest_layer, model.vocabulary * model.hidden)
    layers = 2 * model.largest_layer * (2 if job.linear is None else job.linear)
    return layers + 2 * model.embeddings + (0 if job.adapter else 6 * largest)


def _activations(job: Job) -> tuple[float, float]:
    """What the forward pass keeps, and what the backward pass of one layer adds."""
    model = job.model
    layer = job.tokens * model.activations() * float(job.activation)
    if job.checkpointing:
        return (model.layers * job.tokens * model.hidden * job.residual if job.kept else 0), layer * AGAIN
    return model.layers * layer, layer * (AGAIN - 1)
