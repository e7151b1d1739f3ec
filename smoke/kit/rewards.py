"""The rewards of a row: functions, one of them a coroutine in some rows, or a function and a reward model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from smoke.kit import grpo, tiny

SECOND = "evenness"  # the name of the second reward


class Reward:
    """A reward function that notes what it is called with, and gives a multiple of 1/256 or None.

    Sums of such numbers are exact in float32. `silent` says for which prompt's tag and which text there is None.
    """

    def __init__(self, name: str, score: Callable[[str], float], silent: Callable[[str, str], bool]) -> None:
        self.__name__ = name
        self._score, self._silent = score, silent
        self.calls: list[tuple[list[str], list[str], list[float | None]]] = []

    def __call__(self, completions: list[Any], **columns: Any) -> Any:
        """The rewards of the completions."""
        return self._judge(completions, columns["tag"])

    def _judge(self, completions: list[Any], tags: Sequence[str]) -> list[float | None]:
        texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
        rewards = [
            None if self._silent(tag, text) else rounded(self._score(text))
            for tag, text in zip(tags, texts, strict=True)
        ]
        self.calls.append((list(tags), texts, rewards))
        return rewards


class AsyncReward(Reward):
    """The same as a coroutine, which TRL awaits in a thread of its own: an object, which it has to look into."""

    async def __call__(self, completions: list[Any], **columns: Any) -> Any:
        """The rewards of the completions."""
        return self._judge(completions, columns["tag"])


def coroutine(reward: Reward) -> Any:
    """The same as a plain coroutine function."""

    async def asynchronous(completions: list[Any], **columns: Any) -> Any:
        return reward(completions, **columns)

    asynchronous.__name__ = reward.__name__
    vars(asynchronous)["calls"] = reward.calls
    return asynchronous


def rounded(score: float) -> float:
    """The nearest multiple of 1/256."""
    return round(256 * score) / 256


def lower_half(text: str) -> float:
    """A quarter of the number of even characters."""
    return sum(ord(letter) % 2 == 0 for letter in text) / 4


def make(level: str, model: Path | None = None) -> list[Any]:
    """The rewards of a level of the factor `rewards`; of two weighted ones the second is an asynchronous object.

    Or it is a reward model, if there is a `model` directory that its tokenizer can be written to. Where some prompts
    get none, the second is a coroutine function.
    """

    def by_tag(tag: str, _: str) -> bool:
        return int(tag) % 2 == 1

    def by_text(_: str, text: str) -> bool:
        return sum(map(ord, text)) % 4 == 0

    never = lambda *_: False  # noqa: E731 - the two others say when
    first = {"none for some completions": by_text}.get(level, never)
    second = {"none for some prompts": by_tag, "none for some completions": by_text}.get(level, never)
    functions: list[Any] = [Reward("spelling", grpo.Reward.score, first)]
    if level == "two weighted":
        return [*functions, AsyncReward(SECOND, lower_half, never) if model is None else _make_model(model)]
    if level == "one":
        return functions
    other = Reward(SECOND, lower_half, second)
    return [*functions, coroutine(other) if level == "none for some prompts" else other]


def _make_model(directory: Path) -> Any:
    """A reward model that notes the texts it is given, and scores them as `lower_half` does."""
    import torch
    from transformers import PretrainedConfig, PreTrainedModel
    from transformers.modeling_outputs import SequenceClassifierOutput

    tiny.make_tokenizer().save_pretrained(directory / SECOND)

    class Model(PreTrainedModel):
        config_class = PretrainedConfig

        def __init__(self) -> None:
            # TRL loads the tokenizer from there, and names the reward after the last part of it.
            super().__init__(PretrainedConfig(name_or_path=str(directory / SECOND)))
            self.calls: list[tuple[None, list[str], list[float]]] = []  # it is shown no column of the data
            self.weight = torch.nn.Parameter(torch.ones(()))  # as a model without any has no device

        def forward(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
            texts = [_spelled(*row) for row in zip(input_ids.tolist(), attention_mask.tolist(), strict=True)]
            scores = [rounded(lower_half(text)) for text in texts]
            self.calls.append((None, texts, scores))
            return SequenceClassifierOutput(logits=self.weight * torch.tensor(scores, device=input_ids.device)[:, None])

    return Model()


def _spelled(ids: list[int], mask: list[int]) -> str:
    """A text with its special tokens, as a model that reads the last token that is no padding takes it."""
    length = sum(mask)
    # The rest stays in the text, and is taken for wrong there.
    kept = ids[:length] if mask == [1] * length + [0] * (len(mask) - length) else ids
    return tiny.spell(kept)
