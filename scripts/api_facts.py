"""The facts of one release: what its wheel offers, read with `ast`, importing nothing of it.

A fact is `module:name`, `module:` for the module itself, `callable(parameter`, `callable(` or `Class.member`.
"""

from __future__ import annotations

import ast
import hashlib
import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TypedDict

# Of these, only what they declare to need: errors name nothing of theirs.
DECLARED = {
    "scipy", "numba", "pyarrow", "pandas", "fastapi", "starlette", "lm-format-enforcer", "llguidance", "lmdeploy",
    "fsspec", "ray", "axolotl", "xformers", "diffusers", "sentence-transformers", "optimum", "ms-swift",
}  # fmt: skip
# Classes whose members are named in errors.
CLASSES = re.compile(
    r"(GRPO|SFT|DPO|RLOO|PPO|KTO|ORPO|CPO|Reward|OnlineDPO|GKD|Script|Model)(Config|Trainer|Arguments)"
    r"|Trainer|TrainingArguments|PreTrainedModel|PretrainedConfig|PreTrainedConfig|PreTrainedTokenizerBase|PreTrainedTokenizer"
    r"|GenerationConfig|GenerationMixin|BitsAndBytesConfig|LoraConfig|PeftModel|Accelerator|AcceleratorState"
    r"|DeepSpeedPlugin|FullyShardedDataParallelPlugin|VLLMClient|VLLMGeneration|DynamicCache|Cache|Dataset"
    r"|PreTrainedTokenizerFast|SpecialTokensMixin|EmbeddingsMixin|ProcessorMixin|TrainerState|StaticCache|DynamicLayer"
    r"|(Async)?LLM(Engine)?|(Async)?EngineArgs|\w*Config|GPUModelRunner|Worker|SamplingParams|EngineCore\w*|RequestOutput"
    r"|GuidedDecodingParams|StructuredOutputsParams|LoRARequest|WorkerLoRAManager|LLMEngine|Scheduler|ParallelState"
    r"|DeepSpeed\w+|ZeROOrderedDict|Tokenizer|Encoding|MistralTokenizer|Linear4bit|Linear8bitLt|Params4bit|QuantState"
    r"|(Llama|Qwen|Mistral|Mixtral|Gemma|Phi3|Llava|Idefics3|Deepseek)\w*(Attention|Model|DecoderLayer|ForCausalLM|Generation)"
    r"|FSDPModule|DeviceMesh|DTensor|Tuner\w*|BaseTuner\w*|LoraLayer|LoraModel|FastLanguageModel|Hf\w*Config|DataProto"
)
SKIPPED = ("/tests/", "/testing/", "/examples/", "/test_", "/conversion_", "/benchmarks/", "/third_party/", "/_vendor/",
           "/studio/", "/unsloth_cli/", "/unsloth_compiled_cache/")  # programs in Unsloth's wheel  # fmt: skip
# Models whose methods other code calls or copies.
MODELS = re.compile(r"/(?:auto|llama|qwen\w*|mistral|mixtral|gemma\w*|phi3?|llava\w*|idefics3|smolvlm|deepseek\w*)/")
ARCHITECTURE = re.compile(r"^ +\"(\w+)\": ?\(", re.MULTILINE)  # in vLLM's registry


# torch's stubs declare what its compiled part offers.
COMPILED = ("torch/_C/__init__.pyi", "torch/_C/_VariableFunctions.pyi")
REGISTRY = "vllm/model_executor/models/registry.py"
KNOWN: dict[bytes, set[str]] = {}  # what was read of a file: releases have most of them in common
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Release(TypedDict):
    """What is read of a release: its facts, sorted, and its Requires-Dist."""

    facts: list[str]
    requires: list[str]


def scan(path: Path, package: str) -> Release:
    """Read a wheel or a source distribution of a package."""
    facts: set[str] = set()
    requires: list[str] = []
    for name, source in files(path):
        if name.endswith(("METADATA", "PKG-INFO")):
            header = source.replace("\r\n", "\n").partition("\n\n")[0]
            requires = requires or re.findall(r"^Requires-Dist: (.*)$", header, re.MULTILINE)
        if name in COMPILED:
            stub = re.findall(r"^(?:def |class )?([a-zA-Z]\w+)(?=[:(]| *=)", source, re.MULTILINE)
            facts |= {f"torch:{word}" for word in stub}
        if package not in DECLARED and name.endswith(".py") and not any(part in f"/{name}" for part in SKIPPED):
            digest = hashlib.sha256(f"{name}\0{source}".encode()).digest()
            if digest not in KNOWN:
                KNOWN[digest] = facts_of(name, source)
            facts |= KNOWN[digest]
    return {"facts": sorted(facts), "requires": requires}


def files(path: Path) -> Iterator[tuple[str, str]]:
    """The Python files and the metadata of a wheel or of a source distribution, by their path inside it."""
    endings = (".py", ".dist-info/METADATA", "PKG-INFO", *COMPILED)
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if name.endswith(endings):
                    yield name, wheel.read(name).decode("utf-8", "replace")
        return
    with tarfile.open(path) as archive:
        for member in archive:
            name = member.name.partition("/")[2].removeprefix("src/")
            file = archive.extractfile(member) if member.isfile() and name.endswith(endings) else None
            if file is not None and name != "setup.py":
                yield name, file.read().decode("utf-8", "replace")


def facts_of(name: str, source: str) -> set[str]:
    """The facts of one Python file."""
    parts = PurePosixPath(name).with_suffix("").parts
    model = parts[0] == "transformers" and len(parts) > 2 and parts[1] == "models"
    facts: set[str] = set()
    if model:
        # transformers offers at its top what the __all__ of a model's module lists.
        exported = re.search(r"^__all__ = \[(.*?)\]", source, re.DOTALL | re.MULTILINE)
        names = re.findall(r"[\"'](\w+)[\"']", exported[1] if exported else "")
        facts |= {f"transformers:{word}" for word in names}
    if name == REGISTRY:
        facts |= {f"vllm models:{model_name}" for model_name in ARCHITECTURE.findall(source)}
    if (model and not MODELS.search(name)) or name.startswith("vllm/model_executor/models/"):
        return facts
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return facts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return facts | _facts_of_module(module, tree)


def _facts_of_module(module: str, tree: ast.Module) -> set[str]:
    facts = {f"{module}:"} | {f"{module}:{name}" for name in offered(tree) if name.isidentifier()}
    facts |= {f"{function}({parameter}" for function, taken in functions(tree) for parameter in (*taken, "")}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and CLASSES.fullmatch(node.name):
            taken, members = class_members(node)
            facts |= {f"{node.name}({parameter}" for parameter in taken}
            facts |= {f"{node.name}.{member}" for member in members}
    return facts


def offered(tree: ast.Module) -> set[str]:
    """What can be imported from a module: what it defines, assigns or imports, also under if and try."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            continue
        names |= _names_of(node)
        for block in ("body", "orelse", "finalbody", "handlers"):
            waiting += getattr(node, block, [])
    return names


def _names_of(node: ast.AST) -> set[str]:
    """The names that one statement binds; of __all__ and _import_structure, those that they list."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        return names | _strings(node) if names & {"_import_structure", "__all__"} else names
    if isinstance(node, ast.Expr | ast.AugAssign) and "_import_structure" in ast.unparse(node)[:120]:
        return _strings(node)
    return set()


def _strings(node: ast.AST) -> set[str]:
    constants = (child.value for child in ast.walk(node) if isinstance(child, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def class_members(node: ast.ClassDef) -> tuple[set[str], set[str]]:
    """A class's parameters (of __init__, or its fields) and its members (methods, and what is set on self)."""
    taken: set[str] = set()
    members: set[str] = set()
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            members.add(child.name)
            if child.name == "__init__":
                taken |= _named_parameters(child) - {"self"} | deprecated(child)
        elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            taken.add(child.target.id)
            members.add(child.target.id)
        elif isinstance(child, ast.Assign):
            members |= {target.id for target in child.targets if isinstance(target, ast.Name)}
    stored = (
        child for child in ast.walk(node) if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store)
    )
    members |= {place.attr for place in stored if isinstance(place.value, ast.Name) and place.value.id == "self"}
    return taken, members


def functions(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Every function and method, as a traceback names it, and its parameters."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, parameters(node)
        elif isinstance(node, ast.ClassDef):
            for child in node.body:
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    name = node.name if child.name == "__init__" else f"{node.name}.{child.name}"
                    yield name, parameters(child)


def parameters(node: Function) -> set[str]:
    """The parameters of a function or method; "**" where it takes any."""
    taken = _named_parameters(node) - {"self", "cls"}
    return taken | ({"**"} if node.args.kwarg else deprecated(node))


def _named_parameters(node: Function) -> set[str]:
    arguments = node.args
    return {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}


def deprecated(node: Function) -> set[str]:
    """What a decorator still takes for a function: @deprecate_kwarg("tokenizer", ...)."""
    names: set[str] = set()
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and "deprecate" in ast.unparse(decorator.func):
            keywords = (keyword.value for keyword in decorator.keywords if keyword.arg != "version")
            texts = (text for argument in (*decorator.args, *keywords) for text in _strings(argument))
            names |= {text for text in texts if text.isidentifier()}
    return names
