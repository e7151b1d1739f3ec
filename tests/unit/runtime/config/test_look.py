"""Wrong configurations: the words, the line and the next step for each; and no word about a right one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.check import Check
from runtime.config import look, source
from tests.unit.runtime.conftest import GOOD

Checks = Callable[..., list[Check]]


def test_nothing_is_said_about_a_config_without_mistakes(check: Checks) -> None:
    assert check(GOOD) == []
    more = """\
learning_rate: 1e-6   # text in YAML 1.1, and a number for TRL
save_strategy: "no"
optim: sgd
loss_type: dr_grpo
num_processes: 2
mixed_precision: bf16
model_init_kwargs: {dtype: bfloat16}
env: {NCCL_DEBUG: INFO}
reward_weights: [1.0]
report_to: [tensorboard]
accelerate_config: zero3
"""
    assert check(GOOD + more, "--max_steps", "3", "--bf16", "--no_remove_unused_columns", "--temperature=1") == [
        Check(
            "stop",
            "--temperature: there is no option temperature",
            "remove it; an option of another tool has no effect here",
        )
    ]


@pytest.mark.parametrize(
    ("line", "message", "next_step"),
    [
        ("learning_rte: 1", "my.yaml:4: there is no option learning_rte", "did you mean learning_rate?"),
        ("learning-rate: 1", "my.yaml:4: there is no option learning-rate", "did you mean learning_rate?"),
        ("max_steps: many", "my.yaml:4: max_steps is 'many'", "give a whole number"),
        ("learning_rate: fast", "my.yaml:4: learning_rate is 'fast'", "give a number"),
        ("max_steps: [1]", "my.yaml:4: max_steps is [1]", "give a single value, not a list"),
        ("bf16: perhaps", "my.yaml:4: bf16 is 'perhaps'", "give true or false"),
        ("save_strategy: step", "my.yaml:4: save_strategy does not take 'step'", "did you mean steps?"),
        ("optim: adamw_torc", "my.yaml:4: optim does not take 'adamw_torc'", "did you mean adamw_torch?"),
        ("loss_type: dr-grpo", "my.yaml:4: loss_type does not take 'dr-grpo'", "did you mean dr_grpo?"),
        ("max_steps: 1\nmax_steps: 2", "my.yaml:4: max_steps is set again below, and only the last one counts", "remove"),  # noqa: E501
        ("save_strategy: no", "my.yaml:4: save_strategy is False", 'give "no" with the quotes: YAML reads no as false'),
        ("per_device_train_batch_size: 0", "my.yaml:4: per_device_train_batch_size is 0", "give 1 or more"),
        ("num_generations: 7", "my.yaml:4: per_device_train_batch_size 8 x 1 process = 8 completions", "can be 2, 4, 8 here"),  # noqa: E501
        ("num_generations: 1", "my.yaml:4: num_generations is 1", "give 2 or more"),
        ("generation_batch_size: 12", "my.yaml:4: generation_batch_size 12 is not divisible", "a multiple of 8"),
        ("generation_batch_size: 8\nsteps_per_generation: 1", "my.yaml:4: generation_batch_size and", "remove one"),
        ("reward_weights: [1, 2]", "my.yaml:4: 2 reward_weights for 1 reward_funcs", "one weight"),
        ("deepspeed: ds3.json", "my.yaml:4: deepspeed: ds3.json cannot be read", "accelerate_config: zero3"),
        ("accelerate_config: zero33", "my.yaml:4: zero33 is neither a file nor one of TRL's", "did you mean zero3?"),
        ("report_to: wandb", "my.yaml:4: report_to is wandb, and there is no key for it", "WANDB_MODE=offline"),
        ("load_in_4bit: true", "my.yaml:4: a model in 4 bits cannot be trained itself", "use_peft: true"),
        ("dataset_train_split: test", "my.yaml:2: a file has the split train only, not test", "remove"),
        ("eval_strategy: steps", "my.yaml:2: eval_strategy needs a split for evaluation", "test.jsonl"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named_with_the_next_step(check: Checks, line: str, message: str, next_step: str) -> None:
    (only,) = check(f"{GOOD}{line}\n")
    assert only.level == "stop"
    assert message in only.message
    assert next_step in only.next_step


def replaced(option: str, value: str) -> str:
    return "".join(f"{option}: {value}\n" if line.startswith(option) else f"{line}\n" for line in GOOD.splitlines())


@pytest.mark.parametrize(
    ("option", "value", "message", "next_step"),
    [
        ("model_name_or_path", "modl/", "my.yaml:1: model_name_or_path: modl/ is not there", "did you mean model?"),
        ("model_name_or_path", "./none", "my.yaml:1: model_name_or_path: ./none is not there", "the folder where you ran"),  # noqa: E501
        ("model_name_or_path", ".", "my.yaml:1: . is no model: it has no config.json", "save_pretrained"),
        ("model_name_or_path", "modl", "my.yaml:1: modl is no folder here", "did you mean model? if not: vetted use"),
        ("model_name_or_path", "Qwen/Qwen3-0.6B", "my.yaml:1: Qwen/Qwen3-0.6B is no folder here", "--network"),
        ("model_name_or_path", "", "there is no model", "name a folder"),
        ("dataset_name", "train.json", "my.yaml:2: dataset_name: train.json is not there", "did you mean train.jsonl?"),
        ("dataset_name", "trl-lib/tldr", "my.yaml:2: trl-lib/tldr is no folder here", "--network"),
        ("dataset_name", "rewards.py", "my.yaml:2: rewards.py has no data", ".jsonl"),
        ("dataset_name", "nothing", "my.yaml:2: nothing has no data", ".jsonl"),
        ("dataset_name", "", "there is no dataset", "name a file"),
        ("reward_funcs", "rewards.accuracy", "my.yaml:3: reward_funcs is a text", "[rewards.accuracy]"),
        ("reward_funcs", "[reward.accuracy]", "my.yaml:3: there is no module reward", "did you mean rewards.accuracy?"),
        ("reward_funcs", "[rewards.acuracy]", "my.yaml:3: rewards.py has no function acuracy", "did you mean rewards.accuracy?"),  # noqa: E501
        ("reward_funcs", "[acuracy_reward]", "my.yaml:3: there is no reward function acuracy_reward", "did you mean accuracy_reward?"),  # noqa: E501
        ("reward_funcs", "[rewards.zzz]", "my.yaml:3: rewards.py has no function zzz", "it has accuracy"),
        ("reward_funcs", "[]", "there is no reward", "rewards.accuracy"),
    ],
)  # fmt: skip
def test_a_file_or_function_that_is_not_there_is_named(
    check: Checks, option: str, value: str, message: str, next_step: str
) -> None:
    Path("nothing").mkdir()
    (only,) = check(replaced(option, value))
    assert message in only.message
    assert next_step in only.next_step


@pytest.mark.parametrize(
    ("definition", "message", "next_step"),
    [
        (
            "def accuracy(prompts, completions): ...",
            "does not take answer, trainer_state, which TRL passes",
            "add **kwargs",
        ),
        ("def accuracy(completions, **_): ...", "", ""),
        ("async def accuracy(completions, *, answer, **_): ...", "", ""),
        ("def accuracy(completions, anser, **_): ...", "needs anser", "did you mean answer?"),
        ("def accuracy(completions, weight=1, **_): ...", "", ""),
        ("@cached\ndef accuracy(x): ...", "", ""),
        ("accuracy = make_reward()", "", ""),
        ("from elsewhere import *", "", ""),
        ("def accuracy(completions, **_)\n    return 1", "rewards.py:1: Python does not read this", "fix that line"),
    ],
)
def test_a_reward_function_takes_what_trl_passes(check: Checks, definition: str, message: str, next_step: str) -> None:
    Path("rewards.py").write_text(definition + "\n")
    checks = check(GOOD)
    if not message:
        assert checks == []
    else:
        (only,) = checks
        assert message in only.message
        assert next_step in only.next_step


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"prompt": "a"}', '{"prompt": "b"'], "train.jsonl:2: this line is not JSON"),
        (["[" * 100_000], "train.jsonl:1: this line is not JSON"),
        (['["a"]'], "train.jsonl:1: this line is no JSON object"),
        (['{"prompt": "a", "answer": "1"}', "", '{"prompt": "b", "answer": 2}'], "train.jsonl:3: answer is a number here, and text in line 1"),  # noqa: E501
        (['{"promt": "a", "answer": "b"}'], "train.jsonl has no column prompt; it has answer, promt"),
        ([""], "train.jsonl is empty"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit_are_named_by_their_line(check: Checks, lines: list[str], message: str) -> None:
    Path("train.jsonl").write_text("\n".join(lines) + "\n")
    assert message in check(GOOD)[0].message


def test_rows_may_lack_a_column_or_mix_kinds_of_numbers(check: Checks) -> None:
    Path("train.jsonl").write_text(
        '{"prompt": "a", "answer": 1}\n{"prompt": "b", "answer": null}\n{"prompt": "c", "answer": 0.5}\n'
    )
    assert check(GOOD) == []


def test_what_is_in_the_cache_of_the_hub_needs_no_network(check: Checks, tmp_path: Path) -> None:
    (tmp_path / "hf/hub/models--Qwen--Qwen3-0.6B").mkdir(parents=True)
    text = replaced("model_name_or_path", "Qwen/Qwen3-0.6B")
    assert check(text, environ={"HF_HOME": str(tmp_path / "hf")}) == []
    assert check(text, environ={"HF_HUB_OFFLINE": "0"}) == []
    assert len(check(text)) == 1


@pytest.mark.parametrize(
    ("name", "folder"),
    [("trl-lib/tldr", "trl-lib___tldr"), ("openai/GSM8K", "openai___gsm8_k"), ("squad", "squad")],
)
def test_a_prepared_dataset_needs_no_network(check: Checks, tmp_path: Path, name: str, folder: str) -> None:
    """`datasets` reads its Arrow files, also where the download itself is gone."""
    (tmp_path / "prepared" / folder).mkdir(parents=True)
    text = replaced("dataset_name", name)
    assert check(text, environ={"HF_DATASETS_CACHE": str(tmp_path / "prepared")}) == []
    assert len(check(text, environ={"HF_DATASETS_CACHE": str(tmp_path / "nowhere")})) == 1


@pytest.mark.parametrize("module", ["operator", "json.decoder", "compiled", "package.compiled"])
def test_a_module_without_a_source_is_not_called_missing(check: Checks, here: Path, module: str) -> None:
    (here / "compiled.cpython-311-x86_64-linux-gnu.so").touch()
    (here / "compiled.abi3.so").touch()
    (here / "package").mkdir()
    (here / "package/compiled.abi3.so").touch()
    assert check(replaced("reward_funcs", f"[{module}.reward]")) == []


def test_a_dataset_of_save_to_disk_is_told_apart(check: Checks, here: Path) -> None:
    (here / "saved").mkdir()
    for name in ("state.json", "dataset_info.json"):
        (here / "saved" / name).write_text("{}")
    (only,) = check(replaced("dataset_name", "saved"))
    assert "save_to_disk" in only.message


def test_the_opposite_of_an_option_is_one_only_where_the_option_is_true(check: Checks) -> None:
    assert check(GOOD, "--no_remove_unused_columns") == []
    (only,) = check(GOOD, "--no_bf16")
    assert "there is no option no_bf16" in only.message


def test_a_key_for_wandb_is_seen_wherever_it_is(check: Checks, tmp_path: Path) -> None:
    text = GOOD + "report_to: [wandb, tensorboard]\n"
    assert len(check(text)) == 1
    assert check(text, environ={"WANDB_MODE": "offline"}) == []
    assert check(text, environ={"WANDB_API_KEY": "k"}) == []
    for variable in ("WANDB_MODE: offline", "WANDB_API_KEY: k"):
        assert check(f"{text}env: {{{variable}}}\n") == []
    assert len(check(f"{text}env: {{WANDB_MODE: online}}\n", environ={"WANDB_MODE": "offline"})) == 1  # TRL sets it
    (tmp_path / "run/secrets").mkdir(parents=True)
    (tmp_path / "run/secrets/wandb_api_key").write_text("k\n")
    assert check(text) == []


def test_a_folder_whose_data_may_not_be_read_is_no_traceback(check: Checks, here: Path) -> None:
    (here / "data").mkdir()
    (here / "data/train.jsonl").symlink_to(here / "gone.jsonl")
    (only,) = check(replaced("dataset_name", "data"))
    assert only.message == "data/train.jsonl cannot be read: No such file or directory"


@pytest.mark.parametrize("text", ["[" * 100_000, "{" * 100_000])
def test_files_that_nest_too_deep_are_no_traceback(check: Checks, text: str) -> None:
    for name in ("ds3.json", "zero3.yaml", "model/config.json"):
        Path(name).write_text(text)
    messages = [each.message for each in check(f"{GOOD}deepspeed: ds3.json\naccelerate_config: zero3.yaml\n")]
    assert len(messages) == 2
    assert messages[0].startswith("ds3.json: this is not JSON")
    assert messages[1].startswith("my.yaml:5: zero3.yaml is no accelerate config")


def test_a_trainer_that_computes_its_keywords_is_read(check: Checks, site: Path) -> None:
    trainer = site / "trl/trainer/grpo_trainer.py"
    trainer.write_text(trainer.read_text().replace('reward_kwargs["trainer_state"]', "reward_kwargs[self.key]"))
    assert check(GOOD) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("trl/scripts/grpo.py", "from new_place import main\n"),
        # TRL 1.0's KTOConfig: its options are those of a base that lies elsewhere.
        ("trl/trainer/grpo_config.py", "class GRPOConfig(_GRPOConfig):\n    beta: float = 0.0\n"),
        ("trl/trainer/grpo_config.py", "class GRPOConfig(new_place.GRPOConfig):\n    beta: float = 0.0\n"),
    ],
)
def test_a_release_with_another_source_is_checked_for_the_rest(
    site: Path, here: Path, tmp_path: Path, file: str, text: str
) -> None:
    (site / file).write_text(text)
    (here / "my.yaml").write_text(GOOD + "unheard_of: 1\ndeepspeed: none.json\n")
    checks = look.look(source.read(Path("my.yaml"), ()), "grpo", site, 1, here, {}, tmp_path)
    assert [check.message for check in checks] == [
        "my.yaml:5: deepspeed: none.json cannot be read: No such file or directory"
    ]


def test_a_model_folder_that_is_no_json_is_no_traceback(check: Checks) -> None:
    for text in ("[]", "{", json.dumps({"max_position_embeddings": None})):
        Path("model/config.json").write_text(text)
        assert check(GOOD) == []
