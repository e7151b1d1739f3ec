"""Faults that a real run has had, each put into one run: what a change of a library or a mistake of a user does.

`before` comes before the trainer is made, `after` after it, and before the monitor is put on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _nothing(*_: Any) -> None:
    pass


@dataclass(frozen=True)
class Fault:
    """`caught`: the checks of which one must raise an alarm. `job`: what the run must have for it to show."""

    why: str
    caught: tuple[str, ...]
    before: Callable[[], None] = _nothing
    after: Callable[[Any], None] = _nothing
    job: tuple[tuple[str, Any], ...] = ()


def _wrap(owner: Any, name: str, wrong: Callable[..., Any]) -> None:
    right = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: wrong(right, *args, **kwargs))


def _output(change: Callable[[Any, dict[str, Any]], None]) -> Callable[[Any], None]:
    """A change of what a generation hands on."""

    def after(trainer: Any) -> None:
        def wrong(right: Any, *args: Any) -> Any:
            output = right(*args)
            change(trainer, output)
            return output

        _wrap(trainer, "_generate_and_score_completions", wrong)

    return after


def _flip(_: Any, output: dict[str, Any]) -> None:
    output["advantages"] = -output["advantages"]


def _no_baseline(_: Any, output: dict[str, Any]) -> None:
    output["advantages"] = output["advantages"] + 1.0


def _rotated(_: Any, output: dict[str, Any]) -> None:
    output["advantages"] = output["advantages"].roll(1)


def _old_policy_colder(_: Any, output: dict[str, Any]) -> None:
    output["old_per_token_logps"] = output["old_per_token_logps"] * 0.9


def _in_loss(change: Callable[[Any, dict[str, Any]], dict[str, Any]]) -> Callable[[Any], None]:
    """A change of what reaches the loss."""

    def after(trainer: Any) -> None:
        name = "_compute_loss" if hasattr(trainer, "_compute_loss") else "compute_loss"
        _wrap(
            trainer,
            name,
            lambda right, model, inputs, *rest, **more: right(model, change(trainer, inputs), *rest, **more),
        )

    return after


def _half_masked(_: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    mask = inputs["completion_mask"].clone()
    mask[::2] = 0
    return {**inputs, "tool_mask": mask}


def _zeroed(_: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    advantages = inputs["advantages"].clone()
    advantages[::2] = 0
    return {**inputs, "advantages": advantages}


def _negated(_: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    return {**inputs, "advantages": -inputs["advantages"]}


def _first_batch_again(trainer: Any) -> None:
    """The buffer of the first generation is used for ever."""

    def wrong(right: Any, inputs: Any) -> Any:
        answer = right(inputs)
        trainer.first_batch = getattr(trainer, "first_batch", answer)
        return trainer.first_batch

    _wrap(trainer, "_prepare_inputs", wrong)


def _generates_early(trainer: Any) -> None:
    """Only the first micro-batch of a generation is used."""

    def wrong(right: Any, inputs: Any) -> Any:
        if trainer.model.training:
            trainer._buffered_inputs = None
        return right(inputs)

    _wrap(trainer, "_prepare_inputs", wrong)


def _constant_reward(trainer: Any) -> None:
    trainer.reward_funcs = [lambda completions, **_: [0.5] * len(completions)]


def _infinite_reward(trainer: Any) -> None:
    trainer.reward_funcs = [
        lambda completions, **_: [float("inf") if not i else 0.1 * i for i in range(len(completions))]
    ]


def _reference_of_another(trainer: Any) -> None:
    import torch

    with torch.no_grad():
        for parameter in trainer.ref_model.parameters():
            parameter.mul_(1.05)


def _reference_is_policy(trainer: Any) -> None:
    trainer.ref_model = trainer.model


def _adapter_stays_on(trainer: Any) -> None:
    import contextlib

    trainer.model.disable_adapter = contextlib.nullcontext
    for name in ("set_adapter",):
        if hasattr(trainer.model, name):
            setattr(trainer.model, name, _nothing)
    import trl.trainer.grpo_trainer as module

    if hasattr(module, "use_adapter"):
        module.use_adapter = lambda *_, **__: contextlib.nullcontext()


def _ascends(trainer: Any) -> None:
    def wrong(right: Any, *args: Any, **kwargs: Any) -> Any:
        result = right(*args, **kwargs)
        for group in trainer.optimizer.param_groups:
            group["maximize"] = True
        return result

    _wrap(trainer, "create_optimizer", wrong)


def _other_parameters(trainer: Any) -> None:
    """The optimizer has a copy of the parameters, as after a model was replaced."""
    import torch

    copies = [torch.nn.Parameter(p.detach().clone()) for p in trainer.model.parameters()]
    trainer.optimizer = torch.optim.AdamW(copies, lr=1e-3)


def _twice_as_cold(trainer: Any) -> None:
    """The sampler divides by the temperature twice."""
    trainer.generation_config.temperature = trainer.args.temperature**2


def _greedy(trainer: Any) -> None:
    trainer.generation_config.do_sample = False


def _same_seed(trainer: Any) -> None:
    trainer.vllm_generation.llm.seed = 7


def _stale_policy(trainer: Any) -> None:
    """The sampler keeps the first weights: the model as it was loaded generates."""
    import contextlib

    from transformers import AutoModelForCausalLM
    from trl.trainer import grpo_trainer as module

    # Not a copy: TRL's forward, which the model has been given, would go on with the trainer's weights.
    old = AutoModelForCausalLM.from_pretrained(trainer.model.name_or_path).eval()

    @contextlib.contextmanager
    def frozen(*_: Any, **__: Any) -> Any:
        yield old

    module.unwrap_model_for_generation = frozen


def _never_synced(trainer: Any) -> None:
    trainer.vllm_generation.sync_weights = _nothing


def _sync_skipped(trainer: Any) -> None:
    """The trainer believes that vLLM has the weights of this step."""

    def wrong(right: Any, *args: Any, **kwargs: Any) -> Any:
        trainer._last_loaded_step = trainer.state.global_step
        return right(*args, **kwargs)

    _wrap(trainer, "_generate_single_turn", wrong)


def _one_tensor_left_out(trainer: Any) -> None:
    inside = trainer.vllm_generation.llm.inside
    load = inside.load_weights
    inside.load_weights = lambda weights: load([(n, t) for n, t in weights if "lm_head" not in n])


def _asleep(trainer: Any) -> None:
    """What TRL 0.28 to 1.9 did with vLLM's sleep mode: after the sync, the initial checkpoint is loaded again."""
    import torch

    inside, keeper = trainer.vllm_generation.llm.inside, trainer.vllm_generation
    first = {name: parameter.detach().clone() for name, parameter in inside.model.named_parameters()}
    sync = keeper.sync_weights

    def wrong() -> None:
        sync()
        with torch.no_grad():
            for name, parameter in inside.model.named_parameters():
                parameter.copy_(first[name])

    keeper.sync_weights = wrong


def _scored_without_temperature(trainer: Any) -> None:
    """vLLM's log-probabilities are from before the temperature (TRL 0.23, VETTED-0025)."""
    import torch

    engine = trainer.vllm_generation.llm
    generate = engine.generate

    def wrong(prompts: Any, sampling_params: Any = None, **rest: Any) -> Any:
        outputs = generate(prompts, sampling_params, **rest)
        for output in outputs:
            completion, ids = output.outputs[0], list(output.prompt_token_ids)
            with torch.no_grad():
                logits = engine.inside.model(torch.tensor([ids + completion.token_ids])).logits[0, len(ids) - 1 :]
            raw = torch.log_softmax(logits.float(), -1)
            for place, token in enumerate(completion.token_ids):
                completion.logprobs[place][token].logprob = float(raw[place, token])
        return outputs

    engine.generate = wrong


def _engine_twice_as_cold(trainer: Any) -> None:
    trainer.vllm_generation.llm.temperature_twice = True


def _end_unknown(trainer: Any) -> None:
    """The model declares a second end token, and the trainer does not know it (VETTED-0122)."""
    letter = trainer.processing_class.convert_tokens_to_ids("e")
    trainer.model.generation_config.eos_token_id = [trainer.processing_class.eos_token_id, letter]


def _overflow(trainer: Any) -> None:
    name = next(n for n in ("_get_per_token_logps_and_entropies", "_get_per_token_logps") if hasattr(trainer, n))

    def wrong(right: Any, *args: Any, **kwargs: Any) -> Any:
        result = right(*args, **kwargs)
        if trainer.state.global_step < 9:
            return result
        first = result[0] if isinstance(result, tuple) else result
        return (first * float("inf"), *result[1:]) if isinstance(result, tuple) else first * float("inf")

    _wrap(trainer, name, wrong)


_BETA = (("options", {"beta": 0.05}),)
_COLD = (("options", {"temperature": 0.7}),)
_HOT = (("options", {"learning_rate": 2e-2, "per_device_train_batch_size": 32, "num_generations": 8}),)
_TWICE = (("options", {"num_iterations": 2}),)
_NO_RATE = (("options", {"learning_rate": 0.0}),)
_STANDIN = (("sampler", "standin"),)
_STANDIN_COLD = (("sampler", "standin"), ("options", {"temperature": 0.7}))
_ALL_CUT = (("options", {"mask_truncated_completions": True, "max_completion_length": 1}),)
_ACCUMULATED = (("options", {"gradient_accumulation_steps": 2}),)

FAULTS: dict[str, Fault] = {
    "advantage-sign": Fault("training lowers the reward", ("advantages-rewards",), after=_output(_flip)),
    "advantage-no-baseline": Fault(
        "the group's mean is not subtracted", ("advantages-sum", "advantages-rewards"), after=_output(_no_baseline)
    ),
    "advantage-of-another": Fault(
        "each completion has its neighbour's advantage", ("advantages-rewards",), after=_output(_rotated)
    ),
    "advantage-zeroed": Fault(
        "half of the completions reach the loss with the advantage 0", ("gradient-reaches",), after=_in_loss(_zeroed)
    ),
    "loss-sign": Fault("the loss is negated", ("gradient-direction",), after=_in_loss(_negated)),
    "completions-masked": Fault(
        "the loss drops every second completion", ("gradient-reaches",), after=_in_loss(_half_masked)
    ),
    "buffer-for-ever": Fault("the first buffer is used for ever", ("samples-foreign",), after=_first_batch_again),
    "micro-batches-lost": Fault(
        "only the first micro-batch of a generation is used", ("samples-missing",), after=_generates_early,
        job=_ACCUMULATED,
    ),
    "reward-constant": Fault("the reward is always 0.5", ("rewards-vary",), after=_constant_reward),
    "reward-infinite": Fault("a reward divides by zero", ("rewards-finite",), after=_infinite_reward),
    "all-truncated": Fault(
        "every completion is truncated, and truncated ones are masked", ("loss-has-tokens",), job=_ALL_CUT
    ),
    "end-unknown": Fault("the trainer knows one end token of two", ("completions-stop",), after=_end_unknown),
    "reference-of-another": Fault(
        "the reference is another model", ("kl-starts-at-zero",), after=_reference_of_another, job=_BETA
    ),
    "reference-is-policy": Fault(
        "the reference is the policy itself", ("kl-moves",), after=_reference_is_policy, job=_BETA
    ),
    "adapter-stays-on": Fault(
        "the reference has the policy's adapter", ("kl-moves",), after=_adapter_stays_on,
        job=(*_BETA, ("lora", {"r": 4})),
    ),
    "no-update": Fault("the learning rate is 0", ("weights-move",), job=_NO_RATE),
    "optimizer-of-others": Fault("the optimizer has other parameters", ("weights-move",), after=_other_parameters),
    "optimizer-ascends": Fault("the optimizer maximizes the loss", ("update-descends",), after=_ascends),
    "double-temperature": Fault(
        "the sampler divides by the temperature twice", ("sampled-from-policy",), after=_twice_as_cold, job=_COLD
    ),
    "greedy": Fault(
        "the sampler takes the likeliest token", ("completions-differ", "sampled-from-policy"), after=_greedy
    ),
    "engine-same-seed": Fault(
        "vLLM starts every completion from the same seed", ("completions-differ",), after=_same_seed, job=_STANDIN
    ),
    "stale-sampler": Fault(
        "the sampler keeps the first weights", ("sampled-from-policy",), after=_stale_policy, job=_HOT
    ),
    "not-finite": Fault("log-probabilities overflow", ("numbers-finite",), after=_overflow),
    "old-policy-scored-otherwise": Fault(
        "the old policy's log-probabilities have another temperature", ("ratio-starts-at-one",),
        after=_output(_old_policy_colder), job=_TWICE,
    ),
    "engine-sync-skipped": Fault(
        "the trainer takes vLLM's weights for new", ("weights-synced",), after=_sync_skipped, job=_STANDIN
    ),
    "engine-never-synced": Fault(
        "a sync does nothing", ("weights-in-engine",), after=_never_synced, job=_STANDIN
    ),
    "engine-misses-a-tensor": Fault(
        "a sync leaves the output layer out", ("weights-in-engine",), after=_one_tensor_left_out, job=_STANDIN
    ),
    "engine-slept": Fault(
        "vLLM wakes with the initial checkpoint", ("weights-in-engine",), after=_asleep, job=_STANDIN
    ),
    "engine-double-temperature": Fault(
        "vLLM divides by the temperature twice", ("sampled-from-policy",), after=_engine_twice_as_cold,
        job=_STANDIN_COLD,
    ),
    "engine-scores-unscaled": Fault(
        "vLLM's log-probabilities are without the temperature", ("sampler-trainer",), after=_scored_without_temperature,
        job=_STANDIN_COLD,
    ),
}  # fmt: skip


def job(name: str, seed: int = 1) -> dict[str, Any]:
    """The job in which a fault must show."""
    return {"name": name, "fault": name, "seed": seed, **dict(FAULTS[name].job)}
