"""A stand-in for vLLM's engine: it records what TRL loads into it, and samples with Transformers.

It has the surface that TRL's colocate mode uses, and vLLM's fused names of tensors.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from smoke.kit import adapter

VERSION = "0.12.0"  # for releases of TRL that ask which vLLM is there
FUSED = {"q_proj": ("qkv_proj", 0), "k_proj": ("qkv_proj", 1), "v_proj": ("qkv_proj", 2),
         "gate_proj": ("gate_up_proj", 0), "up_proj": ("gate_up_proj", 1)}  # fmt: skip


class Inside:
    """The model in the engine: load_weights takes names as Transformers has them, named_parameters gives vLLM's."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.loads = 0

    def load_weights(self, weights: Any) -> None:
        import torch

        own = dict(self.model.named_parameters())
        for name, tensor in weights:
            self.loads += 1
            with torch.no_grad():
                own[name].copy_(tensor)

    def named_parameters(self) -> Any:
        import torch

        fused: dict[str, dict[int, Any]] = {}
        for name, parameter in self.model.named_parameters():
            key = next((key for key in FUSED if key in name), None)
            if key is None:
                yield name, parameter
            else:
                whole, place = FUSED[key]
                fused.setdefault(name.replace(key, whole), {})[place] = parameter
        for name, parts in fused.items():
            yield name, torch.cat([parts[place].detach() for place in sorted(parts)])


class Engine:
    """What `vllm.LLM` is to TRL."""

    def __init__(self, folder: Path, kind: str) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, **adapter.dtype(kind))
        self.inside = Inside(model.eval())
        runner = SimpleNamespace(model=self.inside)
        worker = SimpleNamespace(model_runner=runner)
        self.llm_engine = SimpleNamespace(
            model_executor=SimpleNamespace(driver_worker=worker),
            vllm_config=SimpleNamespace(model_config=SimpleNamespace(max_model_len=512)),
        )
        self.temperature_twice = False
        self.seed: int | None = None

    def generate(self, prompts: Any, sampling_params: Any = None, **_: Any) -> list[Any]:
        """Sample a completion for each prompt, with log-probabilities at the sampling temperature."""
        import torch

        model, parameters = self.inside.model, sampling_params
        outputs = []
        for prompt in prompts:
            ids = self._tokens(prompt)
            tokens: list[int] = []
            scores: list[dict[int, Any]] = []
            if self.seed is not None:
                torch.manual_seed(self.seed)
            with torch.no_grad():
                for _step in range(parameters.max_tokens):
                    logits = model(torch.tensor([ids + tokens])).logits[0, -1].float()
                    scored = torch.log_softmax(logits / parameters.temperature, -1)
                    drawn = scored / parameters.temperature if self.temperature_twice else scored
                    token = int(torch.multinomial(torch.softmax(drawn, -1), 1))
                    tokens.append(token)
                    scores.append({token: SimpleNamespace(logprob=float(scored[token]), rank=1)})
                    if token == model.config.eos_token_id:
                        break
            completion = SimpleNamespace(token_ids=tokens, logprobs=scores)
            outputs.append(SimpleNamespace(prompt_token_ids=ids, outputs=[completion]))
        return outputs

    def chat(self, messages: Any, sampling_params: Any = None, **_: Any) -> list[Any]:
        """TRL 0.25 hands conversations over."""
        template = self.tokenizer.apply_chat_template
        prompts = [template(each, tokenize=False, add_generation_prompt=True) for each in messages]
        return self.generate(prompts, sampling_params)

    def _tokens(self, prompt: Any) -> list[int]:
        """Older releases of TRL hand text over."""
        if isinstance(prompt, str):
            return list(self.tokenizer(prompt, add_special_tokens=False)["input_ids"])
        return list(prompt["prompt_token_ids"] if isinstance(prompt, dict) else prompt)

    def reset_prefix_cache(self) -> None:
        """There is none."""

    def sleep(self, level: int = 1) -> None:
        """Weights stay: a sleeping vLLM is another fault."""

    def wake_up(self, tags: Any = None) -> None:
        """Nothing slept."""


def install(folder: Path, kind: str) -> None:
    """Have TRL start the stand-in in place of vLLM, which need not be installed, with weights of this type."""
    module: Any = adapter.engine_module()
    module.LLM = lambda *_, **__: Engine(folder, kind)
    if not hasattr(module, "SamplingParams"):
        module.is_vllm_available = lambda *_, **__: True
        module.SamplingParams = module.GuidedDecodingParams = module.StructuredOutputsParams = SimpleNamespace
        module.vllm = SimpleNamespace(__version__=VERSION)
