"""One row of a covering array: train as its levels say, and measure how far everything is from the oracle."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smoke.kit import adapter as trl
from smoke.kit import (
    decoder,
    factors,
    grpo,
    journal,
    quantized,
    rewards,
    standin,
    tiny,
    zero,
)
from smoke.kit.factors import Row
from smoke.kit.journal import Journal, Weights
from smoke.kit.measured import Measured, measure
from smoke.probe import Context

EVAL_PROMPTS, EVAL_ROWS = 6, 6


@dataclass
class Stretch:
    """A trainer from its start to its end, or to where it was stopped, and what it did wrong besides the numbers."""

    journal: Journal
    saved_wrong: list[str] = field(default_factory=list)
    handover: standin.Handover | None = None


class Training:
    """The trainers of a row: one, or a second one that resumes where the first was stopped."""

    def __init__(self, context: Context, row: Row, chosen: dict[str, Any]) -> None:
        self.context, self.row, self._options_of_row = context, row, chosen
        self.shape, self.adapter = factors.shape(row), factors.adapter(row)
        self.directory = context.directory / f"model-{context.rank}"
        self.output = context.directory / "trainer"
        self.quantized = factors.quantized(row)
        self.snapshot: Callable[[Any], Weights] = grpo.snapshot
        if row.get("backend") == "zero3":
            self.snapshot = _gather
        elif self.quantized:
            self.snapshot = quantized.snapshot
        self.conversational = row["prompts"] != "text"
        self.data = journal.dataset(factors.PROMPTS, conversational=self.conversational)
        self.eval_sets = {
            name: journal.dataset(
                EVAL_PROMPTS, conversational=self.conversational, part=f"{journal.EVAL} {name}".strip()
            )
            for name in journal.eval_sets(row)
        }

    def tokens(self, row: dict[str, Any]) -> journal.Tokens:
        """The tokens of the prompt of a row of the data."""
        return journal.prompt_tokens(row, factors.opening(self.row))

    def save_model(self) -> None:
        """Save the model that training starts from. About half of its completions end by themselves."""
        import torch

        shape = self.shape
        model = tiny.make_model(self.context.seed, shape.architecture, tied=shape.tied, **shape.options())
        with torch.no_grad():
            model.get_output_embeddings().weight[model.config.eos_token_id] *= 4
        model.save_pretrained(self.directory)
        tiny.make_tokenizer().save_pretrained(self.directory)

    def run(self) -> list[Stretch]:
        """Train, and return what occurred on this rank."""
        if self.row["saving"] != "resumed":
            return [self._stretch(0)]
        from accelerate.state import AcceleratorState

        stop = factors.period(self.row)
        first = self._stretch(0, stop=stop)
        # Otherwise it accepts only one DeepSpeed configuration per process.
        AcceleratorState._reset_state()
        if self.context.ranks > 1 and self.context.device == "cpu":
            _load_from_numbered_cpus()
        return [first, self._stretch(stop)]

    def _stretch(self, start: int, stop: int | None = None) -> Stretch:
        # A reward model in some of the rows of one process: it needs no option that could be a level.
        judge = self.context.ranks == 1 and (self.row["embedding"] == "tied" or self.row["evaluation"] != "never")
        functions = rewards.make(self.row["rewards"], self.context.directory if judge else None)
        handover = self._handover() if "correction" in self.row else None
        with standin.in_place_of_vllm(handover) if handover else contextlib.nullcontext():
            trainer = grpo.make_trainer(self.context, self._model(), [*functions], **self._options())
            if self.quantized:
                quantized.float32_adapter(trainer.model)
            return self._train(trainer, functions, handover, start, stop)

    def _train(
        self,
        trainer: Any,
        functions: list[Any],
        handover: standin.Handover | None,
        start: int,
        stop: int | None,
    ) -> Stretch:
        record = journal.record(trainer, self.snapshot, start, handover)
        stretch = Stretch(record, handover=handover)
        if handover is not None:
            handover.policy = lambda: decoder.plain(
                {name: weight.double() for name, weight in self.snapshot(trainer.model).items()}, self.adapter
            )
        trainer.add_callback(_watch(stretch, self.snapshot, trainer, stop))
        checkpoint = Path(trainer.args.output_dir) / f"checkpoint-{start}"
        trainer.train(resume_from_checkpoint=str(checkpoint) if start else None)
        journal.finish(record, trainer, functions, self.snapshot)
        return stretch

    def _model(self) -> Any:
        """What the trainer is given: a directory, or a model whose weights are in 4 bits."""
        if not self.quantized:
            return self.directory
        return quantized.load(self.directory, quantized.device(self.context), "float32")

    def _handover(self) -> standin.Handover:
        chosen = factors.options(self.row)
        settings = {name: chosen[name] for name in ("temperature", "top_p", "top_k")}
        settings |= {"min_p": chosen["min_p"] or 0.0, "max_tokens": factors.LENGTH, "n": 1}
        return standin.Handover(self.shape, settings)

    def _options(self) -> dict[str, Any]:
        from peft import LoraConfig

        row, known = self.row, trl.known_options()
        options = {
            **self._options_of_row,
            "max_steps": factors.steps(row),
            "num_generations": factors.generations(row),
            "per_device_train_batch_size": factors.completions(row),
            "max_completion_length": factors.LENGTH,
            "train_dataset": self.data.to_iterable_dataset() if row.get("order") == "streamed" else self.data,
            # The table that users look at, in some of the rows; as a file alone, because drawing it takes long.
            "log_completions": not self.conversational,
            **({"num_completions_to_print": 0} if "num_completions_to_print" in known else {}),
        }
        if self.context.ranks > 1 and self.context.device == "cpu":
            # Without it, the trainer takes several processes on CPUs for one.
            options["use_cpu"] = True
        if row.get("backend", "ddp") != "ddp":
            options |= _zero(self.context.device, 3 if row["backend"] == "zero3" else 2)
        if row["saving"] != "never":
            options |= {
                "save_strategy": "steps",
                "save_steps": 1 if row["saving"] == "every step" else factors.period(row),
            }
        if row["evaluation"] != "never":
            options |= {
                "eval_dataset": self.eval_sets.get("", self.eval_sets),
                "eval_strategy": "steps",
                "eval_steps": factors.period(row),
                "eval_on_start": True,
                "per_device_eval_batch_size": EVAL_ROWS,
            }
            if "num_generations_eval" in known:
                options["num_generations_eval"] = self.eval_generations
        if self.adapter is not None:
            options["peft_config"] = LoraConfig(
                r=self.adapter.rank,
                lora_alpha=self.adapter.alpha,
                use_rslora=self.adapter.rank_stabilised,
                modules_to_save=list(self.adapter.whole) or None,
                target_modules="all-linear",
                task_type="CAUSAL_LM",
            )
        return options

    @property
    def eval_generations(self) -> int:
        """Another number of completions than in training, if this TRL has the option."""
        own = factors.generations(self.row)
        return (3 if own == 2 else 2) if "num_generations_eval" in trl.known_options() else own


def _zero(device: str, stage: int) -> dict[str, Any]:
    options = zero.options(device, stage)
    # Otherwise a checkpoint has no weights that could be loaded without DeepSpeed.
    options["deepspeed"]["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = True
    return options


def _load_from_numbered_cpus() -> None:
    """Let torch load onto "cpu:0": the trainer asks for it where CPUs stand for GPUs, and torch knows only "cpu"."""
    import torch

    torch.serialization.register_package(
        0, lambda _: None, lambda storage, location: storage if location.startswith("cpu:") else None
    )


def _gather(model: Any) -> Weights:
    return zero.gather(dict(model.named_parameters()))


def _watch(stretch: Stretch, snapshot: Callable[[Any], Weights], trainer: Any, stop: int | None) -> Any:
    """Stops the trainer after step `stop`, and compares each checkpoint with the weights that it was made of."""
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
            control.should_training_stop = control.should_training_stop or state.global_step == stop

        def on_save(self, arguments: Any, state: Any, _: Any, **__: Any) -> None:
            weights = snapshot(trainer.model)
            if arguments.process_index == 0:
                directory = Path(arguments.output_dir) / f"checkpoint-{state.global_step}"
                stretch.saved_wrong += [
                    f"step {state.global_step}: {what}" for what in _differences(directory, weights)
                ]

    return Watch()


def _differences(directory: Path, weights: Weights) -> Iterator[str]:
    """The tensors of a checkpoint that are not, bit for bit, the weights."""
    import torch
    from safetensors.torch import load_file

    adapter_file = directory / "adapter_model.safetensors"
    if adapter_file.exists():
        expected = {
            name.replace(".modules_to_save", "").replace(".default.", "."): weight
            for name, weight in weights.items()
            if decoder.is_adapter(name)
        }
        saved = load_file(adapter_file)
    else:
        expected, saved = weights, load_file(directory / "model.safetensors")
    for name in sorted({*expected, *saved}):
        if name not in saved or name not in expected:
            # A tied output layer may be in the file or not.
            if name != "lm_head.weight":
                yield f"{name} is {'missing' if name in expected else 'foreign'}"
        elif not torch.equal(saved[name], expected[name]):
            yield f"{name} differs"


def run_row(context: Context, row: Row, chosen: dict[str, Any]) -> Measured | None:
    """Train one row in this process, or together with the other ranks, and measure it on the first."""
    training = Training(context, row, chosen)
    training.save_model()
    stretches = training.run()
    if context.ranks == 1:
        return measure(training, [[stretch] for stretch in stretches])
    import torch.distributed as dist

    last = stretches[-1].journal.last
    others: list[Any] = [None] * context.ranks
    dist.all_gather_object(others, [_lean(stretch) for stretch in stretches])
    if context.rank:
        return None
    # This rank's own journals are complete, the others' have no weights but the last.
    ranks = [stretches, *others[1:]]
    result = measure(training, [list(together) for together in zip(*ranks, strict=True)])
    differ = [
        f"{name} of rank {rank}"
        for rank, other in enumerate(ranks)
        for name, weight in other[-1].journal.last.items()
        if not weight.equal(last[name])
    ]
    return {**result, "ranks_differ": (float(len(differ)), "; ".join(differ[:3]))}


def _lean(stretch: Stretch) -> Stretch:
    """What the first rank needs of another one."""
    own = stretch.journal
    steps = [journal.Step({}, step.passes, {}, step.losses) for step in own.steps]
    generations = [dataclasses.replace(g, scores=None) for g in own.generations]
    return Stretch(dataclasses.replace(own, steps=steps, generations=generations))
