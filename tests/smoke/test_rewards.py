"""What the rewards of a row are, and whether each of them was shown what the first one was."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from smoke.kit import evaluation, journal, rewards, sampled, tiny
from smoke.kit.journal import Generation

PROMPT, TEXTS, TAGS = (5, 6), ["ab", "cd"], ["0", "1"]


def test_rewards_are_functions_asynchronous_objects_and_coroutines() -> None:
    kinds = {level: rewards.make(level)[-1] for level in ("two weighted", "none for some prompts")}
    assert not inspect.iscoroutinefunction(kinds["two weighted"])
    assert inspect.iscoroutinefunction(type(kinds["two weighted"]).__call__)
    assert inspect.iscoroutinefunction(kinds["none for some prompts"])
    assert not inspect.iscoroutinefunction(rewards.make("none for some completions")[-1])


def test_a_coroutine_gives_none_and_notes_its_calls() -> None:
    function = rewards.make("none for some prompts")[-1]
    given = asyncio.run(function(completions=TEXTS, tag=TAGS))
    assert [reward is None for reward in given] == [False, True]
    assert function.calls == [(TAGS, TEXTS, given)]
    assert function.__name__ == rewards.SECOND


def finished(*calls: tuple[list[str] | None, list[str]]) -> Generation:
    """A generation of two completions, of which each function was shown these tags and texts."""

    class Function:
        def __init__(self, tags: list[str] | None, texts: list[str]) -> None:
            self.calls = [(tags, texts, [1.0] * len(texts))]

    class State:
        log_history: tuple[Any, ...] = ()

    class Trainer:
        model, state = None, State()

    completions = [tuple(map(tiny.VOCABULARY.index, text)) for text in TEXTS]
    record = journal.Journal(0, generations=[Generation(1, 0, [PROMPT, PROMPT], completions)])
    snapshot: Callable[[Any], dict[str, Any]] = lambda _: {}  # noqa: E731
    journal.finish(record, Trainer(), [Function(*call) for call in calls], snapshot)
    return record.generations[0]


@pytest.mark.parametrize(
    ("second", "wrong"), [((TAGS, TEXTS), 0), ((TAGS, TEXTS[::-1]), 1), ((TAGS[::-1], TEXTS), 1), ((None, TEXTS), 0)]
)
def test_every_reward_function_is_compared_with_the_first(
    second: tuple[list[str] | None, list[str]], wrong: int
) -> None:
    generation = finished((TAGS, TEXTS), second)
    told = [what for what in sampled._wrong(generation, {PROMPT: "0"}) if what.startswith("another reward")]
    assert len(told) == wrong


def test_a_reward_model_is_known_even_where_it_saw_nothing() -> None:
    assert finished((TAGS, TEXTS), (TAGS, TEXTS)).judged is None
    generation = finished((TAGS, TEXTS), (None, TEXTS))
    assert generation.judged == TEXTS
    generation.judged = []
    with pytest.raises(ValueError, match="shorter"):
        list(sampled._model_shown(generation, {}, ""))


@pytest.mark.parametrize(
    ("name", "entry", "key"),
    [
        ("", {"eval_reward": 1.0}, "eval_reward"),
        ("first", {"eval_reward": 1.0}, "eval_reward"),
        ("first", {"eval_first_reward": 1.0}, "eval_first_reward"),
        ("first", {"eval_second_reward": 1.0}, "eval_reward"),
    ],
)
def test_a_metric_of_a_set_may_have_its_name(name: str, entry: dict[str, float], key: str) -> None:
    assert evaluation._key(name, "reward", entry) == key
