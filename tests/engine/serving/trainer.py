"""Run by the stack's Python beside a server: TRL's client and GRPO trainer. Prints what happened, as JSON.

Arguments: the folder of the server's model, and a folder to work in.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig, GRPOTrainer
from trl.generation import vllm_client

from smoke.kit import tiny
from tests.attempt import error_of
from tests.engine.serving import carrier

URL = "http://127.0.0.1:8000"
PROMPT = [5, 6, 7, 8, 9]


def distance(model: Any, client: Any) -> float:
    """The largest distance between the server's log-probability of a token that it sampled and the model's, in nats."""
    answer = client.generate([PROMPT], n=4, max_tokens=8, logprobs=0)
    furthest = 0.0
    for tokens, logprobs in zip(answer["completion_ids"], answer["logprobs"], strict=True):
        with torch.no_grad():
            rows = model(torch.tensor([PROMPT + tokens])).logits[0, len(PROMPT) - 1 : -1].log_softmax(-1)
        expected = rows[range(len(tokens)), tokens]
        furthest = max(furthest, (expected - torch.tensor(logprobs)[:, 0]).abs().max().item())
    return furthest


def asked_of_another(client: Any) -> int:
    """How often the client asks something else at the server's address, which says 404 twice and then 200."""
    count = 0

    class Another(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal count
            count += 1
            self.send_response(404 if count < 3 else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Another) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        before, client.base_url = client.base_url, f"http://127.0.0.1:{other.server_port}"
        client.check_server(total_timeout=0.0, retry_interval=0.0)
        client.base_url = before
        other.shutdown()
    return count


def train(model: Path, folder: Path) -> tuple[Any, list[dict[str, float]]]:
    """Three steps of GRPO; the trainer, and its log."""
    config = GRPOConfig(
        output_dir=str(folder),
        use_vllm=True,
        vllm_mode="server",
        use_cpu=True,
        bf16=False,
        max_steps=3,
        learning_rate=0.01,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=8,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        str(model),
        reward_funcs=lambda completion_ids, **_: [float(sum(token < 60 for token in row)) for row in completion_ids],
        args=config,
        train_dataset=tiny.make_prompts(16),
    )
    trainer.train()
    return trainer, [row for row in trainer.state.log_history if "reward" in row]


def main(model: Path, folder: Path) -> None:
    client = vllm_client.VLLMClient(base_url=URL, group_port=51217)
    answer: dict[str, Any] = {
        "model": client.model,
        "address": vllm_client.get_ip(),
        "world": client.get_world_size(),
        "transfer": client.get_server_info()["weight_transfer_config"],
        "nobody": error_of(vllm_client.VLLMClient, "http://127.0.0.1:1"),
        "asked of another": asked_of_another(client),
        "too long": error_of(client.generate, [PROMPT * 200]),
        "on a CPU": error_of(client.init_communicator, "cpu"),
        "on a GPU": error_of(client.init_communicator, 0),
    }
    carrier.install()
    ours, others = tiny.make_model(1).eval(), tiny.make_model(2).eval()
    answer["before"] = [distance(ours, client), distance(others, client)]
    client.init_communicator("cuda")
    client.update_model_params(others)
    client.reset_prefix_cache()
    answer["after"] = [distance(ours, client), distance(others, client)]

    # A second trainer joins the same server. TRL refuses the CPU that it trains on here.
    join = vllm_client.VLLMClient.init_communicator
    vllm_client.VLLMClient.init_communicator = lambda self, **_: join(self, "cuda")
    trainer, rows = train(model, folder)
    answer["sampling"] = [row["sampling/sampling_logp_difference/mean"] for row in rows]
    trainer.vllm_generation.sync_weights()
    policy = trainer.model.eval()
    answer["trained"] = [distance(policy, client), distance(ours, client)]
    print(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
