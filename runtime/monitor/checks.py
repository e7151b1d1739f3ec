"""What the monitor checks: a number of each step, its bound, and what it means when the bound is broken.

The bounds come from measurements: `measured` in docs/evidence/monitor.json, by benchmarks/monitor.py. TABLE is a
literal, so that `vetted verify` reads it without running it.

`needs`: what a run must have for the check to apply. `cause` is the likely one, not the only one. `recovers`: if the
number is within its bound again at the end, the run lost steps, but trained what was meant: then it is advice.
"""

from __future__ import annotations

from dataclasses import dataclass

TABLE = [
    {
        "name": "gradient-direction",
        "column": "gradient_angle",
        "at_most": 0.02,
        "level": "alarm",
        "asks": "does the loss push every completion the way its advantage points?",
        "broken": "the loss pushes a completion another way than its advantage: 1 - cosine is {value}",
        "cause": "the sign, the ratio or the KL term of the loss is wrong, or a completion has another's advantage",
        "needs": "logprobs",
        "advisories": ["VETTED-0001"],
    },
    {
        "name": "gradient-reaches",
        "column": "gradient_lost",
        "at_most": 0,
        "level": "alarm",
        "asks": "does every completion with an advantage get a gradient?",
        "broken": "{value} completions have an advantage and no gradient",
        "cause": "the loss masks them, or multiplies them by zero",
        "needs": "logprobs",
    },
    {
        "name": "samples-missing",
        "column": "samples_missing",
        "at_most": 0,
        "level": "alarm",
        "asks": "does every generated completion reach the loss?",
        "broken": "{value} generated completions never reached the loss",
        "cause": "the trainer drops a part of its buffer, or generates again before it is used up",
        "needs": "grpo",
        "advisories": ["VETTED-0078"],
    },
    {
        "name": "samples-foreign",
        "column": "samples_foreign",
        "at_most": 0,
        "level": "alarm",
        "asks": "does the loss get only what was generated, with its own advantage, as often as num_iterations says?",
        "broken": "{value} completions in the loss were not generated with this advantage, or are used too often",
        "cause": "completions and advantages are shuffled apart, or a buffer is used again",
        "needs": "grpo",
    },
    {
        "name": "advantages-sum",
        "column": "advantage_sum",
        "at_most": 0.05,
        "level": "alarm",
        "asks": "do the advantages of a group sum to zero?",
        "broken": "the advantages of a group sum to {value} of their size, and should to 0",
        "cause": "the baseline is missing, or groups are not what was generated together",
        "needs": "groups",
    },
    {
        "name": "advantages-rewards",
        "column": "advantage_error",
        "at_most": 0.01,
        "level": "alarm",
        "asks": "are the advantages those of the rewards, by the published formula?",
        "broken": "an advantage is {value} away from what its rewards give, as a share of the largest",
        "cause": "rewards are weighted, grouped or scaled in another way than the configuration says",
        "needs": "rewards",
    },
    {
        "name": "rewards-finite",
        "column": "rewards_infinite",
        "at_most": 0,
        "level": "alarm",
        "asks": "are rewards numbers?",
        "broken": "{value} rewards are infinite",
        "cause": "a reward function divides by zero or takes the logarithm of zero",
        "needs": "rewards",
    },
    {
        "name": "rewards-vary",
        "column": "signal_never",
        "at_most": 4,
        "level": "alarm",
        "recovers": True,
        "asks": "do rewards differ within a group, so that there is anything to learn from?",
        "broken": "no group has had two different rewards, in {value} generations since the start",
        "cause": "the reward function is constant (wrong column, a parser that never matches), or the task is too hard",
        "needs": "groups",
    },
    {
        "name": "rewards-still-vary",
        "column": "signal_lost",
        "at_most": 9,
        "level": "advice",
        "asks": "do rewards still differ within groups?",
        "broken": "no group has had two different rewards in the last {value} generations: nothing is learned any more",
        "cause": "the task is solved, or the policy has collapsed",
        "needs": "groups",
    },
    {
        "name": "loss-has-tokens",
        "column": "loss_empty",
        "at_most": 4,
        "level": "alarm",
        "recovers": True,
        "asks": "does the loss see any token?",
        "broken": "the loss has seen no token for {value} steps",
        "cause": "mask_truncated_completions is on and every completion is truncated: raise max_completion_length",
        "needs": "grpo",
        "advisories": ["VETTED-0075"],
    },
    {
        "name": "completions-end",
        "column": "endless",
        "at_most": 4,
        "level": "advice",
        "asks": "do completions end by themselves?",
        "broken": "every completion has been truncated, in {value} generations one after another",
        "cause": "max_completion_length is too small, or the model's end token is not the tokenizer's",
        "needs": "grpo",
        "advisories": ["VETTED-0122", "VETTED-0109"],
    },
    {
        "name": "completions-stop",
        "column": "past_end",
        "at_most": 0,
        "level": "alarm",
        "asks": "do completions stop at the end token?",
        "broken": "{value} completions go on in the loss after an end token of the model",
        "cause": "the trainer knows fewer end tokens than the model declares",
        "needs": "single_turn",
        "advisories": ["VETTED-0122"],
    },
    {
        "name": "completions-differ",
        "column": "repeat_nats",
        "at_most": 60,
        "level": "alarm",
        "asks": "are equal completions as likely as the policy says?",
        "broken": "equal completions that chance gives once in e^{value}",
        "cause": "the sampler is greedy, or starts every completion from the same seed",
        "needs": "logprobs",
    },
    {
        "name": "sampled-from-policy",
        "column": "surprisal_gap",
        "at_most": 0.02,
        "level": "alarm",
        "asks": "do completions come from the distribution that the trainer scores?",
        "broken": "completions surprise the policy by {value} nats a token more or less than it expects, beyond chance",
        "cause": "the sampler has old weights, another temperature, or other prompts than the trainer scores",
        "needs": "calibrated",
        "advisories": ["VETTED-0007", "VETTED-0024", "VETTED-0025"],
    },
    {
        "name": "sampler-trainer",
        "column": "sampler_unexplained",
        "at_most": 0.1,
        "level": "alarm",
        "asks": "does vLLM give its tokens the log-probabilities that the trainer gives them?",
        "broken": "log-probabilities of vLLM and trainer are {value} nats apart",
        "cause": "vLLM has old weights, or its log-probabilities are without the temperature",
        "needs": "sampler",
        "advisories": ["VETTED-0024", "VETTED-0025", "VETTED-0099", "VETTED-0116"],
    },
    {
        "name": "sampler-rounding",
        "column": "sampler_rounding",
        "at_most": 0.1,
        "level": "advice",
        "asks": "does rounding leave vLLM and trainer close together?",
        "broken": "log-probabilities of vLLM and trainer are {value} nats apart by rounding: their weights are equal",
        "cause": "the model amplifies rounding, or dropout; leave vllm_importance_sampling_correction on",
        "needs": "engine",
    },
    {
        "name": "weights-in-engine",
        "column": "engine_stale",
        "at_most": 0,
        "level": "alarm",
        "asks": "does vLLM have the trainer's weights when it generates?",
        "broken": "{value} of the compared tensors in vLLM are not the trainer's",
        "cause": "a sync left them out, or vLLM slept and woke with others",
        "needs": "engine",
        "advisories": ["VETTED-0024", "VETTED-0099", "VETTED-0111"],
    },
    {
        "name": "weights-synced",
        "column": "engine_behind",
        "at_most": 0,
        "level": "alarm",
        "asks": "did a sync follow every update, before the next generation?",
        "broken": "vLLM generates with the weights of {value} steps ago",
        "cause": "the sync was skipped",
        "needs": "vllm",
        "advisories": ["VETTED-0024"],
    },
    {
        "name": "ratio-starts-at-one",
        "column": "ratio_error",
        "at_most": 0.02,
        "level": "alarm",
        "asks": "is the importance ratio 1 before the first update?",
        "broken": "log-probabilities of old and new policy are {value} nats apart before any update",
        "cause": "they are computed in different ways: temperature, mask, padding, dropout",
        "needs": "ratio",
    },
    {
        "name": "kl-starts-at-zero",
        "column": "kl_start",
        "at_most": 0.02,
        "level": "alarm",
        "asks": "is the reference the model that training starts from?",
        "broken": "policy and reference are {value} nats apart before the first update",
        "cause": "the reference was loaded from another place, or in another type, than the policy",
        "needs": "reference",
        "advisories": ["VETTED-0013"],
    },
    {
        "name": "kl-moves",
        "column": "kl_still",
        "at_most": 1,
        "level": "alarm",
        "asks": "does the reference stay where it was when the policy moves?",
        "broken": "policy and reference have been equal for {value} steps, though the policy moved",
        "cause": "the reference is the policy itself: an adapter that stays on, or a shared model",
        "needs": "fixed_reference",
        "advisories": ["VETTED-0013"],
    },
    {
        "name": "weights-move",
        "column": "steps_still",
        "at_most": 2,
        "level": "alarm",
        "asks": "does a step change the weights?",
        "broken": "no weight has changed for {value} steps, though there is a gradient",
        "cause": "the learning rate is 0, the optimizer has other parameters, or updates vanish in bfloat16 weights",
        "needs": "update",
        "advisories": ["VETTED-0074"],
    },
    {
        "name": "update-descends",
        "column": "uphill",
        "at_most": 0,
        "level": "alarm",
        "asks": "does the first update go down the gradient?",
        "broken": "the first update went up the gradient",
        "cause": "the sign of the optimizer's step, or maximize=True",
        "needs": "gradient",
    },
    {
        "name": "numbers-finite",
        "column": "not_finite",
        "at_most": 0,
        "level": "alarm",
        "asks": "are log-probabilities, gradients and weights finite?",
        "broken": "{value} numbers of this step are not finite",
        "cause": "an overflow: float16, a learning rate that is too high, a ratio that is not clipped",
        "needs": "",
    },
]


@dataclass(frozen=True)
class Check:
    """A check: `column` is the number of a step, which must be at most `at_most`."""

    name: str
    column: str
    at_most: float
    level: str  # alarm: the training is wrong; advice: look at it
    asks: str
    broken: str
    cause: str
    needs: str
    advisories: tuple[str, ...] = ()
    recovers: bool = False

    def sentence(self, value: float) -> str:
        """What a value beyond the bound means."""
        return self.broken.format(value=f"{value:.3g}")


def _check(row: dict[str, object]) -> Check:
    return Check(**{**row, "advisories": tuple(row.get("advisories", ()))})  # type: ignore[arg-type]


CHECKS = tuple(_check(row) for row in TABLE)
