"""Joins what the hooks see into one row of numbers for each step."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from . import engine, judge, loss, ranks, run, samples, weights
from .checks import CHECKS
from .completions import Completions, Generated, Surprised, Used
from .hooks import LOGPS, Guard, after, around, before, logps_and_entropies
from .rounding import Rounding

WINDOW = 10  # steps over which sampler and policy are compared
VISIBLE = 1e-3  # a share of the weights whose change shows in log-probabilities, even in bfloat16
CERTAIN = 6.0  # standard errors: what chance does not give in 100 million steps


class Observer:
    """Watches one trainer. `row` ends a step."""

    def __init__(self, trainer: Any, guard: Guard) -> None:
        self.trainer, self.guard = trainer, guard
        self.absent = run.absent(trainer)
        self.pending = loss.Pending()
        self.rounding = Rounding()
        self.completions = Completions()
        self.inputs: Any = None  # of the loss that is being computed
        self.policy: Any = None  # its log-probabilities and terms, once they are known
        self.rewards: Any = None
        self.generated_at, self.synced_at = -1, 0
        self.resumed = False
        self.excess: deque[tuple[float, float, float]] = deque(maxlen=WINDOW)
        self.endless = self.still = self.empty = self.equal = 0
        self.updates = self.turn = 0
        self.travel = 0.0  # how far all updates together have moved the weights, as a share of their size
        self.places: list[weights.Place] = []
        self.before: Any = None
        self.gradient: Any = None
        self.parameters: list[Any] = []
        self.extra: dict[str, float] = {}
        self._attach()

    # --- attaching ---------------------------------------------------------------------------------------------------

    def _attach(self) -> None:
        trainer, guard = self.trainer, self.guard
        if "grpo" not in self.absent:
            after(trainer, "_generate_and_score_completions", guard, self._generated)
            after(trainer, "_calculate_rewards", guard, self._rewarded)
            around(trainer, "compute_loss", guard, self._enter_loss, self._leave_loss)
            for name in LOGPS:
                if after(trainer, name, guard, self._scored):
                    break
        if "vllm" not in self.absent:
            keeper = engine.owner(trainer)
            if sync := engine.sync_name(keeper):
                after(keeper, sync, guard, self._synced)
            if "engine" not in self.absent:
                before(keeper.llm, "generate", guard, self._about_to_generate)

    def prepared(self) -> None:
        """When training begins: DeepSpeed may have sharded the weights only now."""
        if run.sharded(self.trainer):
            for need in ("replicas", "engine"):
                self.absent.setdefault(need, run.SHARDED)

    def resume(self, last: Mapping[str, Any]) -> None:
        """Go on where an earlier process ended. `last`: the last number of each column."""
        self.resumed = True
        self.empty = int(judge.number(last.get("loss_empty")) or 0)
        self.completions.resume(last)

    @property
    def training(self) -> bool:
        return bool(self.trainer.model.training)

    @property
    def step(self) -> int:
        return int(self.trainer.state.global_step)

    # --- generation --------------------------------------------------------------------------------------------------

    def _synced(self, _result: Any, *_: Any) -> None:
        self.synced_at = self.step

    def _about_to_generate(self) -> None:
        if not self.training or "engine" in self.absent:
            return
        self.guard.settle()
        policy = self.trainer.accelerator.unwrap_model(self.trainer.model)
        mine = engine.Weights(policy)
        theirs = dict(engine.model_of(engine.owner(self.trainer).llm).named_parameters())
        differ, compared = engine.stale(mine, theirs, self.turn)
        self.turn += 1
        if compared:
            self._keep("engine_stale", differ)
            self._keep("engine_compared", compared)

    def _rewarded(self, result: Any, *_: Any) -> None:
        if self.training:
            self.rewards = result.detach()

    def _generated(self, output: Any, *_: Any) -> None:
        if not self.training or not isinstance(output, dict):
            return
        if "vllm" not in self.absent:
            self._keep("engine_behind", self.step - self.synced_at if self.step else 0)
        trainer, pad = self.trainer, run.pad(self.trainer)
        marks = samples.fingerprints(output["prompt_ids"], output["completion_ids"], pad)
        advantages = output["advantages"].detach()
        complete = hasattr(trainer.args, "steps_per_generation") or self.step != self.generated_at
        self.generated_at = self.step
        self.completions.events.append(Generated(marks, advantages, self.rewards, complete))
        self.rewards = None
        self._ends(output)

    def _ends(self, output: Any) -> None:
        import torch

        completion, mask = output["completion_ids"], output["completion_mask"].bool()
        declared = torch.tensor(sorted(run.ends(self.trainer)), device=completion.device)
        is_end = torch.isin(completion, declared)
        if "single_turn" not in self.absent:
            earlier = is_end.cumsum(-1) - is_end.long() > 0  # an end token stands before
            self.pending.add("past_end", (earlier & mask).any(-1).sum())
        self.pending.add("completions", torch.full((), completion.shape[0], device=completion.device))
        self.pending.add("completions_ended", is_end.any(-1).sum())
        self.pending.add("tokens", mask.sum())

    # --- the loss ----------------------------------------------------------------------------------------------------

    def _enter_loss(self, _model: Any = None, inputs: Any = None, *_: Any) -> None:
        self.policy = None
        watched = self.training and isinstance(inputs, dict) and "completion_ids" in inputs
        self.inputs = dict(inputs) if watched else None
        if self.inputs is not None:
            marks = samples.fingerprints(inputs["prompt_ids"], inputs["completion_ids"], run.pad(self.trainer))
            self.completions.events.append(Used(marks, inputs["advantages"].detach()))
            if "logprobs" in self.absent:
                self.pending.add("tokens_in_loss", loss.mask_of(inputs).sum())

    def _leave_loss(self) -> None:
        self.inputs = self.policy = None

    def _scored(self, result: Any, *arguments: Any) -> None:
        inputs = self.inputs
        if inputs is None or "logprobs" in self.absent:
            return
        logps, entropies = logps_and_entropies(result)
        if logps.shape != inputs["completion_mask"].shape:
            self.inputs = None  # a later pass of this loss would be taken for the policy's
            return
        if self.policy is not None:  # only the first pass in a loss is the policy's
            self._referred(inputs, logps, *self.policy)
            return
        terms = run.terms(self.trainer, self.generated_at == self.step, self.step == 0 and not self.resumed)
        self.policy = logps.detach(), terms
        loss.observe(self.pending, inputs, logps, None if "calibrated" in self.absent else entropies, terms)
        if terms.fresh:
            if "engine" not in self.absent:
                self.rounding.keep(inputs, arguments)
            marks = samples.fingerprints(inputs["prompt_ids"], inputs["completion_ids"], run.pad(self.trainer))
            self.completions.events.append(Surprised(marks, loss.surprisals(inputs, logps)))
        if logps.requires_grad:
            policy = logps.detach()
            logps.register_hook(lambda gradient: self._pushed(inputs, policy, gradient, terms))

    def _referred(self, inputs: Any, logps: Any, policy: Any, terms: loss.Terms) -> None:
        """A later pass in a loss that was given no reference is that of the reference: so in TRL 0.18."""
        if terms.beta and inputs.get("ref_per_token_logps") is None and not logps.requires_grad:
            inputs["ref_per_token_logps"] = logps
            loss.observe_reference(self.pending, inputs, policy.float(), terms)

    def _pushed(self, inputs: Any, logps: Any, gradient: Any, terms: loss.Terms) -> None:
        self.guard(loss.on_gradient, self.pending, inputs, logps, gradient, terms)

    # --- the update --------------------------------------------------------------------------------------------------

    def begin(self, model: Any) -> None:
        """Before the first micro-batch of a step."""
        if not self.parameters:
            self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.places = weights.places(self.parameters, self.step)
        self.before = weights.values(self.places) if self.places else None
        self.gradient = None

    def unscaled(self) -> None:
        """When the gradient of a step is complete, before the optimizer uses it."""
        self.gradient = weights.gradients(self.places) if self.places else None

    def row(self) -> dict[str, float]:
        """The numbers of the step that has ended."""
        self.guard.settle()
        if self.before is not None:
            after = weights.values(self.places)
            for name, value in weights.moved(self.before, after, self.gradient).items():
                self.pending.keep(name, value)
            if "replicas" not in self.absent:
                self.pending.keep(ranks.MARK, weights.mark(after))
        numbers = {**self.pending.take(), **self.extra}
        if ranks.MARK in numbers:
            numbers[ranks.MARK] = int(numbers[ranks.MARK])
        self.extra = {}
        if "grpo" not in self.absent:
            numbers.update(self.completions.account(self.trainer, self.absent, resumed=self.resumed))
        self.rounding.judge(numbers, self.trainer)
        if self.rounding.reason:
            self.absent["rounding"] = f"rounding could not be measured: {self.rounding.reason}"
        self._calibrate(numbers)
        self._streaks(numbers)
        dropped = {check.column for check in CHECKS if check.needs in self.absent}
        return {name: value for name, value in numbers.items() if name not in dropped}

    def _keep(self, column: str, value: float) -> None:
        self.extra[column] = max(float(value), self.extra.get(column, -math.inf))

    def _calibrate(self, numbers: dict[str, float]) -> None:
        total = numbers.pop("excess", None), numbers.pop("excess_squared", None), numbers.pop("excess_tokens", None)
        if total[0] is None or total[1] is None or total[2] is None:
            return
        if total[2]:
            self.excess.append((total[0], total[1], total[2]))
        sums = [sum(column) for column in zip(*self.excess)]
        if sums and sums[2]:
            mean, error = sums[0] / sums[2], math.sqrt(sums[1]) / sums[2]
            numbers["surprisal"] = mean
            numbers["surprisal_gap"] = max(0.0, abs(mean) - CERTAIN * error)

    def _streaks(self, numbers: dict[str, float]) -> None:
        """Numbers of what may happen once, and means something when it goes on."""
        numbers["not_finite"] = numbers.get("not_finite", 0.0) + numbers.pop("weights_not_finite", 0.0)
        if (completions := numbers.pop("completions", 0.0)) > 0:
            numbers["truncated"] = 1 - numbers.pop("completions_ended", 0.0) / completions
            self.endless = self.endless + 1 if numbers["truncated"] == 1 else 0
            numbers["endless"] = float(self.endless)
        if "tokens_in_loss" in numbers:
            self.empty = self.empty + 1 if numbers["tokens_in_loss"] == 0 else 0
            numbers["loss_empty"] = float(self.empty)
        moves = numbers.get("elements_moved")
        if moves is not None:
            self._update(numbers, moves)
        distance = numbers.get("kl_distance")
        seen = numbers.get("tokens_in_loss", 0.0) > 0 and self.travel > VISIBLE
        if distance is not None and "fixed_reference" not in self.absent and seen:
            self.equal = self.equal + 1 if distance == 0 else 0
            numbers["kl_still"] = float(self.equal)
        if moves:
            self.updates += 1
            self.travel += numbers.get("update_norm", 0.0)

    def _update(self, numbers: dict[str, float], moves: float) -> None:
        slope, gradient = numbers.pop("slope", None), numbers.get("gradient_sample")
        warm = self.step > self._warmup()
        signal = gradient is None or gradient > 0
        if moves:
            self.still = 0
        elif warm and signal and numbers.get("tokens_in_loss", 1.0) and numbers.get("groups_constant", 0.0) < 1:
            self.still += 1
        numbers["steps_still"] = float(self.still)
        if slope is not None and moves and not self.updates and not self.resumed:
            numbers["uphill"] = float(slope > 0)

    def _warmup(self) -> int:
        args = self.trainer.args
        return int(args.get_warmup_steps(max(1, self.trainer.state.max_steps)))
