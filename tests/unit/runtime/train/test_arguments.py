"""The command line of `vetted train`."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.train.arguments import Options, UsageError, parse

MY = Path("my.yaml")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], Options()),
        (["--config", "my.yaml"], Options(config=MY)),
        (["sft", "--config", "my.yaml"], Options(trainer="sft", config=MY)),
        (["--config=my.yaml", "--beta", "0.1"], Options(config=MY, rest=("--beta", "0.1"))),
        (["--resume"], Options(resume=True)),
        (["--resume", "20261121-190000"], Options(resume=True, run="20261121-190000")),
        (["--resume", "--max_steps", "80"], Options(resume=True, rest=("--max_steps", "80"))),
        (["--max_steps", "80", "--resume"], Options(resume=True, rest=("--max_steps", "80"))),
        (["--config", "my.yaml", "--no-check"], Options(config=MY, check=False)),
        (["--config", "my.yaml", "--no-monitor"], Options(config=MY, monitor=False)),
        (["--help"], Options(help=True)),
        # Every command of TRL's documentation has it.
        (["sft", "--output_dir", "out"], Options(trainer="sft", rest=("--output_dir", "out"))),
        # All that follows a script is its own.
        (["my_train.py", "--config", "x"], Options(script=Path("my_train.py"), rest=("--config", "x"))),
        # In their order, negative numbers and lists included, and nothing of TRL's is taken for an abbreviation.
        (
            ["--res", "x", "--temperature", "-0.5", "--config", "my.yaml", "--reward_funcs", "a.b", "c.d", "--conf=1"],
            Options(
                config=MY, rest=("--res", "x", "--temperature", "-0.5", "--reward_funcs", "a.b", "c.d", "--conf=1")
            ),
        ),
    ],
)  # fmt: skip
def test_what_is_ours_is_taken_and_the_rest_is_trls(arguments: list[str], options: Options) -> None:
    assert parse(arguments) == options


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config"],
        ["--config", "--beta", "0.1"],
        ["--config", "a.yaml", "--resume"],
        ["--resume_from_checkpoint", "checkpoint-2"],
        ["--resume-from-checkpoint=checkpoint-2"],
        ["--disable_tqdm", "True"],
        ["--resume", "../other"],
        ["--resume=.."],
        ["--resume="],
        ["ppo", "--config", "my.yaml"],
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        parse(arguments)


def test_check_and_no_check_are_opposites() -> None:
    assert parse(["--config", "my.yaml", "--check"]).only
    with pytest.raises(UsageError, match="say opposite things"):
        parse(["--config", "my.yaml", "--check", "--no-check"])
