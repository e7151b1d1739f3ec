"""Secrets among the options of a run."""

from __future__ import annotations

from runtime.train import credentials


def test_settings_with_a_secret_are_taken_out() -> None:
    public = {"beta": 0.1, "eos_token": "</s>", "max_tokens": 3, "hub_model_id": "a/b", "vllm_api_key": None}
    secret = {"hub_token": "s", "model_init_kwargs": {"token": "s", "revision": "main"}}
    assert credentials.split({**public, **secret}) == (public, secret)
    assert credentials.arguments(secret) == [
        "--hub_token", "s", "--model_init_kwargs", '{"token": "s", "revision": "main"}',
    ]  # fmt: skip


def test_of_env_only_the_secrets_are_taken_out() -> None:
    public, secret = credentials.split({"env": {"WANDB_API_KEY": "s", "HF_TOKEN": "s", "NCCL_DEBUG": "INFO"}})
    assert public == {"env": {"NCCL_DEBUG": "INFO"}}
    assert credentials.variables(secret) == {"WANDB_API_KEY": "s", "HF_TOKEN": "s"}
    assert credentials.arguments(secret) == []
    assert credentials.variables({}) == {}


def test_a_command_is_shown_without_its_secrets() -> None:
    words = ["vetted", "train", "my.py", "--hub-token", "s", "--x", "1", "--api_key=s", "2", "--eos_token", "e"]
    shown = ("vetted", "train", "my.py", "--hub-token=***", "--x", "1", "--api_key=***", "--eos_token", "e")
    assert credentials.hidden(words) == shown
    assert credentials.without(words[3:]) == ("--x", "1", "--eos_token", "e")
