"""What makes a trainer wrong: each function puts one defect into the trainer that it is given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from runtime.monitor.engine import owner, sync_name


def nothing(*_: Any) -> None:
    pass


def wrap(owner: Any, name: str, wrong: Callable[..., Any]) -> None:
    right = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: wrong(right, *args, **kwargs))


def output(change: Callable[[Any, dict[str, Any]], None]) -> Callable[[Any], None]:
    """A change of what a generation hands on."""

    def after(trainer: Any) -> None:
        def wrong(right: Any, *args: Any) -> Any:
            output = right(*args)
            change(trainer, output)
            return output

        wrap(trainer, "_generate_and_score_completions", wrong)

    return after


def flip(_: Any, output: dict[str, Any]) -> None:
    output["advantages"] = -output["advantages"]


def no_baseline(_: Any, output: dict[str, Any]) -> None:
    output["advantages"] = output["advantages"] + 1.0


def rotated(_: Any, output: dict[str, Any]) -> None:
    output["advantages"] = output["advantages"].roll(1)


def old_policy_colder(_: Any, output: dict[str, Any]) -> None:
    output["old_per_token_logps"] = output["old_per_token_logps"] * 0.9


def in_loss(change: Callable[[Any, dict[str, Any]], dict[str, Any]]) -> Callable[[Any], None]:
    """A change of what reaches the loss."""

    def after(trainer: Any) -> None:
        name = "_compute_loss" if hasattr(trainer, "_compute_loss") else "compute_loss"
        wrap(
            trainer,
            name,
            lambda right, model, inputs, *rest, **more: right(model, change(trainer, inputs), *rest, **more),
        )

    return after


def ranks_alone(trainer: Any) -> None:
    """The loss calls the model without its DDP wrapper, as Liger's did in TRL 0.17 (VETTED-0176)."""
    name = "_compute_loss" if hasattr(trainer, "_compute_loss") else "compute_loss"
    wrap(
        trainer,
        name,
        lambda right, model, *rest, **more: right(trainer.accelerator.unwrap_model(model), *rest, **more),
    )


def half_masked(trainer: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    mask = inputs["completion_mask"].clone()
    mask[::2] = 0
    # Older releases of TRL have no mask beside that of the completions, or only for tools.
    known = '"tool_mask" not in inputs' in inspect.getsource(type(trainer))
    return {**inputs, "tool_mask" if known else "completion_mask": mask}


def zeroed(_: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    advantages = inputs["advantages"].clone()
    advantages[::2] = 0
    return {**inputs, "advantages": advantages}


def negated(_: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    return {**inputs, "advantages": -inputs["advantages"]}


def first_batch_again(trainer: Any) -> None:
    """The buffer of the first generation is used for ever."""

    def wrong(right: Any, inputs: Any) -> Any:
        answer = right(inputs)
        trainer.first_batch = getattr(trainer, "first_batch", answer)
        return trainer.first_batch

    wrap(trainer, "_prepare_inputs", wrong)


def generates_early(trainer: Any) -> None:
    """Only the first micro-batch of a generation is used."""
    if not hasattr(trainer.args, "steps_per_generation"):
        raise NotImplementedError("this release generates for each micro-batch")

    def wrong(right: Any, inputs: Any) -> Any:
        if trainer.model.training:
            trainer._buffered_inputs = None
        return right(inputs)

    wrap(trainer, "_prepare_inputs", wrong)


def constant_reward(trainer: Any) -> None:
    trainer.reward_funcs = [lambda completions, **_: [0.5] * len(completions)]


def infinite_reward(trainer: Any) -> None:
    trainer.reward_funcs = [
        lambda completions, **_: [float("inf") if not i else 0.1 * i for i in range(len(completions))]
    ]


def reference_of_another(trainer: Any) -> None:
    import torch

    with torch.no_grad():
        for parameter in trainer.ref_model.parameters():
            parameter.mul_(1.05)


def reference_is_policy(trainer: Any) -> None:
    trainer.ref_model = trainer.model


def adapter_stays_on(trainer: Any) -> None:
    import contextlib

    trainer.model.disable_adapter = contextlib.nullcontext
    for name in ("set_adapter",):
        if hasattr(trainer.model, name):
            setattr(trainer.model, name, nothing)
    import trl.trainer.grpo_trainer as module

    if hasattr(module, "use_adapter"):
        module.use_adapter = lambda *_, **__: contextlib.nullcontext()


def ascends(trainer: Any) -> None:
    def wrong(right: Any, *args: Any, **kwargs: Any) -> Any:
        result = right(*args, **kwargs)
        for group in trainer.optimizer.param_groups:
            group["maximize"] = True
        return result

    wrap(trainer, "create_optimizer", wrong)


def other_parameters(trainer: Any) -> None:
    """The optimizer has a copy of the parameters, as after a model was replaced."""
    import torch

    copies = [torch.nn.Parameter(p.detach().clone()) for p in trainer.model.parameters()]
    trainer.optimizer = torch.optim.AdamW(copies, lr=1e-3)


def twice_as_cold(trainer: Any) -> None:
    """The sampler divides by the temperature twice."""
    trainer.generation_config.temperature = trainer.args.temperature**2


def greedy(trainer: Any) -> None:
    trainer.generation_config.do_sample = False


def same_seed(trainer: Any) -> None:
    owner(trainer).llm.seed = 7


def stale_policy(trainer: Any) -> None:
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


def never_synced(trainer: Any) -> None:
    keeper = owner(trainer)
    setattr(keeper, str(sync_name(keeper)), nothing)


def sync_skipped(trainer: Any) -> None:
    """The trainer believes that vLLM has the weights of this step."""

    def wrong(right: Any, *args: Any, **kwargs: Any) -> Any:
        trainer._last_loaded_step = trainer.state.global_step
        return right(*args, **kwargs)

    names = ("_generate_single_turn", "_generate_and_score_completions")
    wrap(trainer, next(name for name in names if hasattr(trainer, name)), wrong)


def one_tensor_left_out(trainer: Any) -> None:
    inside = owner(trainer).llm.inside
    load = inside.load_weights
    inside.load_weights = lambda weights: load([(n, t) for n, t in weights if "lm_head" not in n])


def asleep(trainer: Any) -> None:
    """What TRL 0.28 to 1.9 did with vLLM's sleep mode: after the sync, the initial checkpoint is loaded again."""
    import torch

    keeper = owner(trainer)
    inside = keeper.llm.inside
    first = {name: parameter.detach().clone() for name, parameter in inside.model.named_parameters()}

    def wrong(right: Any) -> None:
        right()
        with torch.no_grad():
            for name, parameter in inside.model.named_parameters():
                parameter.copy_(first[name])

    wrap(keeper, str(sync_name(keeper)), wrong)


def scored_without_temperature(trainer: Any) -> None:
    """vLLM's log-probabilities are from before the temperature (TRL 0.23, VETTED-0025)."""
    import torch

    if "sampling_per_token_logps" not in inspect.getsource(type(trainer)):
        raise NotImplementedError("this release asks vLLM for no log-probabilities")
    engine = owner(trainer).llm
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


def engine_twice_as_cold(trainer: Any) -> None:
    owner(trainer).llm.temperature_twice = True


def end_unknown(trainer: Any) -> None:
    """The model declares a second end token, and the trainer does not know it (VETTED-0122)."""
    letter = trainer.processing_class.convert_tokens_to_ids("e")
    trainer.model.generation_config.eos_token_id = [trainer.processing_class.eos_token_id, letter]


def overflow(trainer: Any) -> None:
    name = next(n for n in ("_get_per_token_logps_and_entropies", "_get_per_token_logps") if hasattr(trainer, n))

    def wrong(right: Any, *args: Any, **kwargs: Any) -> Any:
        result = right(*args, **kwargs)
        if trainer.state.global_step < 9:
            return result
        first = result[0] if isinstance(result, tuple) else result
        return (first * float("inf"), *result[1:]) if isinstance(result, tuple) else first * float("inf")

    wrap(trainer, name, wrong)
