"""Are the loss and the gradients of GRPO those of the papers?

Catches losses that differ from their options and still train: divided by the wrong number of tokens (truncated
completions that still count, an average of averages), with log-probabilities at another temperature than the one of
sampling, with padding that is attended to, with a KL divergence or clipping bounds without effect.

Trains two steps of real GRPO on scripted completions of different lengths and fixed rewards, once for every way to
average and for every option that changes the loss, and compares loss and gradients of each step with a reference in
plain PyTorch (kit/reference.py). Both steps use the same completions, so that in the second step the policy differs
from the one that sampled and from the reference model. The same batch in the opposite order, and with each prompt
twice, must have the same gradients. Options that this TRL does not have are left out. To show that
it could fail, it measures the error of the gradients if one of the options were ignored. Needs one process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from smoke.kit import adapter, extremes, parity, scripted, side, tiny
from smoke.kit.reference import Objective
from smoke.kit.scripted import Script
from smoke.probe import Bound, Context, Probe, Reading

# Large enough for ratios on both sides of the clipping range after one step, small enough for some within.
LEARNING_RATE = 0.025
EPSILON, EPSILON_HIGH = 0.1, 0.5
TEMPERATURE = 0.7
PROMPT_LENGTHS = (14, 9)

PROBE = Probe(
    matters="a loss that differs from the configured one optimises something else, and still looks like training",
    bounds=(
        Bound(
            "gradient_error",
            "the relative error of the worst tensor's gradient, at temperature 1 and with equally long "
            "prompts: 1.7e-6 to 3.9e-6 over 40 seeds, the rounding of float32; 0.2 where truncated completions still "
            "count (TRL 0.22 to 1.5), 1.4 with scores at wrong positions (TRL 0.14 with Transformers 4.52)",
            at_most=1e-4,
            headline=True,
        ),
        Bound(
            "gradient_error_temperature",
            f"the same when sampling at temperature {TEMPERATURE}: 1.2e-6 to 2.9e-6 over 40 seeds; 0.4 where logits "
            "are not divided by it (TRL up to 0.15)",
            at_most=1e-4,
        ),
        Bound(
            "gradient_error_padding",
            "the same with prompts of different lengths: 1.1e-6 to 3.2e-6 over 40 seeds; 60 where their padding is "
            "attended to (TRL 0.14)",
            at_most=1e-4,
        ),
        Bound(
            "loss_error",
            "in the cases of gradient_error: 5.5e-8 to 1.9e-7 over 40 seeds; 0.03 where truncated completions count",
            at_most=1e-5,
        ),
        Bound(
            "least_effect",
            "gradient_error, over all tensors, if the one option that shows least was ignored: 0.078 to 0.45 over 40 "
            "seeds. Below its bound, the comparison proves nothing",
            at_least=0.02,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2995",
        "https://github.com/huggingface/trl/pull/3029",
        "https://github.com/huggingface/trl/pull/2708",
        "https://github.com/huggingface/trl/pull/6439",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
    forks=True,
)


@dataclass(frozen=True)
class Case:
    """One way to train, and possible mistakes: wrong fields of the objective, by name.

    `same` makes another script, whose loss and gradients must be those of the first.
    """

    name: str
    options: dict[str, Any]
    wrong: dict[str, dict[str, Any]] = field(default_factory=dict)
    architecture: str = "qwen2"
    prompt_lengths: Sequence[int] = ()
    same: Callable[[Script], Script] | None = None
    reading: str = "gradient_error"

    def objective(self) -> Objective:
        """The objective of the reference."""
        options = self.options
        return Objective(
            average=adapter.averages()[options.get("loss_type", "")],
            length=scripted.ALLOWED,
            epsilon=EPSILON,
            epsilon_high=EPSILON_HIGH,
            beta=options["beta"],
            temperature=options.get("temperature", 1.0),
            scale=options.get("scale_rewards", True),
            mask_truncated=options.get("mask_truncated_completions", False),
            weight_kl=options.get("use_bias_correction_kl", False),
        )


def run(context: Context) -> Iterator[Reading]:
    """Train each way, compare with the reference, and with references that are wrong."""
    pieces = {case.name: _piece(context, case) for case in _cases()}
    results = side.side_by_side(pieces, context.directory / "cases", gpus=context.device == "cuda")
    side.require(results)
    for bound in PROBE.bounds:
        values = {label: value for each in results.values() for label, value in each[bound.name].items()}
        yield Reading(bound.name, *extremes.outermost(values, least=bound.name == "least_effect"))


def _piece(context: Context, case: Case) -> Callable[[Path, int], dict[str, dict[str, float]]]:
    return lambda directory, _rank: _measure(replace(context, directory=directory), case)


def _measure(context: Context, case: Case) -> dict[str, dict[str, float]]:
    """The numbers of one case, by bound and by what they are of."""
    readings: dict[str, dict[str, float]] = {bound.name: {} for bound in PROBE.bounds}
    saved = tiny.save(context.directory / case.architecture, context.seed, case.architecture)
    script = scripted.write(context.seed, 2, prompt_lengths=case.prompt_lengths)
    training = scripted.Training(
        context,
        case.same(script) if case.same else script,
        saved,
        max_steps=parity.STEPS,
        learning_rate=LEARNING_RATE,
        **case.options,
    )
    steps = training.run()
    plain = tiny.make_model(0, case.architecture).double()
    for number, step in enumerate(steps, 1):
        expected = parity.Expected(plain, script, step, steps[0].before, case.objective())
        error, tensor = expected.furthest(step.gradients)
        readings[case.reading][f"{case.name}, step {number}, {tensor}"] = error
        if case.reading == "gradient_error":
            readings["loss_error"][f"{case.name}, step {number}"] = abs(step.loss - expected.loss)
    # For the second step: in the first there are neither clipped ratios nor a KL divergence.
    for mistake, fields in case.wrong.items():
        readings["least_effect"][f"{case.name}: {mistake}"] = expected.effect(**fields)
    return readings


def _cases() -> Iterator[Case]:
    """The cases that this TRL supports, with all options explicit."""
    known, averages = adapter.known_options(), adapter.averages()
    first, *others = averages
    common = {
        "loss_type": first,
        "beta": parity.BETA,
        "num_iterations": 2,
        "epsilon": EPSILON,
        "epsilon_high": EPSILON_HIGH,
        "use_bias_correction_kl": False,
    }
    masked: dict[str, dict[str, Any]] = {"not masked": {"mask_truncated": False}}
    wrong: dict[str, dict[str, Any]] = {
        **{
            f"mean per {average}": {"average": average}
            for average in ("sequence", "token", "length")
            if average != averages[first]
        },
        "no KL divergence": {"beta": 0.0},
    }
    if "num_iterations" in known:
        wrong["no lower clipping"] = {"epsilon": math.inf}
        wrong["no upper clipping"] = {"epsilon_high": math.inf}
        wrong["upper clipping as lower"] = {"epsilon_high": EPSILON}
    for case in (
        Case(first or "default", {}, wrong),
        *(Case(name, {"loss_type": name}) for name in others),
        Case("not scaled", {"scale_rewards": False, "beta": 0.0}, {"scaled": {"scale": True}}),
        Case("weighted KL", {"use_bias_correction_kl": True}, {"not weighted": {"weight_kl": False}}),
        Case("truncated masked", {"mask_truncated_completions": True}, masked),
        *(
            Case("truncated masked, dapo", {"mask_truncated_completions": True, "loss_type": name}, masked)
            for name in others
            if name == "dapo"
        ),
        Case("llama", {}, architecture="llama"),
        Case("opposite order", {}, same=scripted.reversed_order),
        *(
            Case(f"each prompt twice, {name}", {"loss_type": name} if name else {}, same=scripted.doubled)
            for name in averages
        ),
        Case(
            f"temperature {TEMPERATURE}",
            {"temperature": TEMPERATURE},
            {"temperature 1": {"temperature": 1.0}},
            reading="gradient_error_temperature",
        ),
        Case("padded prompts", {}, prompt_lengths=PROMPT_LENGTHS, reading="gradient_error_padding"),
    ):
        if case.options.keys() <= known:
            options = {**common, **case.options}
            yield replace(case, options={name: value for name, value in options.items() if name in known})
