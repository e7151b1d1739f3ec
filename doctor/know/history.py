"""When names came and went: lookups in doctor/know/apis/.

A fact is `module:name`, `Class.member`, `Class(parameter`, `Class.method(parameter` or `function(parameter`. A name
that every release has is not in the file, nor one that came and went together with its module or its class.

Not every release was read. Of one that was not, only that is known on which the releases before and after it agree.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from doctor.base import versions
from doctor.base.versions import Version
from doctor.know.data import Api

Apis = dict[str, Api]
# What a class is, by the last word of its name, and the base classes that give such classes their members.
MODEL = ("PreTrainedModel", "ModuleUtilsMixin", "GenerationMixin", "EmbeddingAccessMixin", "PeftAdapterMixin")
KINDS = (
    (re.compile(r"\w*Trainer"), ("Trainer",)),
    (re.compile(r"(?:GRPO|SFT|DPO|RLOO|PPO|KTO|ORPO|CPO|Reward|GKD|OnlineDPO)Config|\w*TrainingArguments"),
     ("TrainingArguments",)),
    (re.compile(r"\w*Config"), ("PreTrainedConfig",)),
    (re.compile(r"\w*Tokenizer(?:Fast)?"), ("PreTrainedTokenizerBase", "PreTrainedTokenizer", "PreTrainedTokenizerFast",
                                            "SpecialTokensMixin", "TokenizersBackend", "PythonBackend")),
    (re.compile(r"\w*Processor(?:Fast)?"), ("ProcessorMixin", "BaseImageProcessor", "BaseImageProcessorFast")),
    (re.compile(r"\w*Cache"), ("Cache", "DynamicCache")),
    (re.compile(r"\w*For[A-Z]\w+|\w*(?:Model|LM)"), MODEL),
)  # fmt: skip
# Classes of many packages, or of Python itself: a member that they lack says nothing about a release.
COMMON = {
    "NoneType", "Tensor", "Namespace", "DictConfig", "Parameter", "DataFrame", "Series", "Dataset", "Module",
    "str", "int", "float", "bool", "bytes", "list", "tuple", "dict", "set", "frozenset", "function", "method", "module",
    "type", "property", "generator", "coroutine", "ellipsis", "builtin_function_or_method",
}  # fmt: skip
STEPPED = re.compile(r"\w*(?:Optimizer|Scheduler|Adam\w*|SGD|Lion\w*|Adafactor|LR)")  # what trains a model is none
# How near the class of a fact is to the class that an error names.
ITSELF, LIKE, BASE, SIMILAR, RELATED, FAR = 100, 50, 12, 11, 10, 1


class Fact(NamedTuple):
    """A name of a package and the releases that brought or dropped it."""

    package: str
    name: str
    changes: tuple[str, ...]  # "+4.49.0", "-5.0.0"; "+0" where the first release that was read has it
    near: int  # how sure it is that the fact is about what the error names
    read: tuple[str, ...] = ()  # the releases of the package that were read, in their order; empty: every one
    unread: tuple[str, ...] = ()

    @property
    def since(self) -> str:
        """The release since which the name has been there; "" where it was dropped last, or always there."""
        return self.changes[-1][1:] if self.changes[-1][0] == "+" and self.changes[-1] != "+0" else ""

    def in_release(self, version: str) -> bool | None:
        """Does a release have the name? None where that cannot be told: it was not read, and its neighbours differ."""
        own = versions.parse(version)
        if own is None or not self.read:
            return self._of_spans(version)
        below, above = self._neighbours(own)
        if below == above:
            return self._of_spans(below or version)
        answers = {self._of_spans(release) if release else None for release in (below, above)}
        if len(answers) == 1:
            return answers.pop()
        # What the last release that was read lacks did not come back since, nor was it there before the first.
        return False if not (below and above) and self._of_spans(below or above) is False else None

    def gap(self, version: str) -> tuple[str, str]:
        """The releases before and after an unread one that do not agree; "" for none, where it is not in between."""
        own = versions.parse(version)
        below, above = self._neighbours(own) if own is not None and self.read else ("", "")
        return (below, above) if below != above and self.in_release(version) is None else ("", "")

    def begins_after(self, version: str) -> str:
        """The first release that was read, if it has the name and `version` is older; else ""."""
        own, first = versions.parse(version), versions.parse(self.read[0]) if self.read else None
        return self.read[0] if own and first and own < first and self.changes[0] == "+0" else ""

    def spans(self) -> tuple[list[str], list[str]]:
        """The releases without the name and those with it, as ranges; unread ones before a change are in neither."""
        return spans(self.changes, self.read, self.unread)

    def _of_spans(self, version: str) -> bool | None:
        without, having = spans(self.changes)
        if any(versions.within(span, version) for span in having):
            return True
        return False if any(versions.within(span, version) for span in without) else None

    def _neighbours(self, own: Version) -> tuple[str, str]:
        """The nearest releases that were read, before and after a version; twice itself where it was read."""
        below = above = ""
        for release in self.read:  # in their order
            parsed = versions.parse(release)
            if parsed is None:
                continue
            if parsed.public == own.public:
                return release, release
            if parsed > own:
                above = release
                break
            below = release
        return below, above


def exact(apis: Apis, name: str, package: str = "") -> Fact | None:
    """The fact of this name: of this package, or of the only package that has it."""
    packages = [candidate for candidate, api in apis.items() if name in api.changes]
    if package not in packages and len(packages) != 1:
        return None
    owner = package if package in packages else packages[0]
    return _fact(apis, owner, name, ITSELF)


def ending(apis: Apis, package: str, name: str) -> list[str]:
    """The facts of a package that end in a name."""
    return apis[package].by_name.get(name, [])


def offered(apis: Apis, name: str) -> list[Fact]:
    """Every module that has had a name."""
    return [
        _fact(apis, package, fact, ITSELF)
        for package in apis
        for fact in ending(apis, package, name)
        if fact.endswith(f":{name}")
    ]


def of_models(apis: Apis, package: str, name: str) -> Fact | None:
    """The method of this name that models got, of the release that was first; None where it went, or is not known."""
    facts = [
        _fact(apis, package, f"{owner}.{name}", FAR) for owner in MODEL if f"{owner}.{name}" in apis[package].changes
    ]
    if not facts or any(not fact.since for fact in facts):
        return None
    return min(facts, key=lambda fact: versions.parse(fact.since) or Version("0"))


def of_class(apis: Apis, owner: str, suffix: str, package: str | None = None) -> Fact | None:
    """The nearest fact of a class or of its likely bases. `suffix`: `.member`, `(parameter` or `.method(parameter`."""
    if owner in COMMON:
        return None
    facts = []
    for candidate in apis:
        for name in ending(apis, candidate, suffix[1:].rpartition("(")[2]):
            holder = name[: -len(suffix)] if name.endswith(suffix) else ""
            near = _near(owner, holder) if holder.isidentifier() else 0
            if near:
                facts.append(_fact(apis, candidate, name, near))
    best = max(facts, key=lambda fact: (fact.near, fact.package == package), default=None)
    if best is None or best.changes[-1][0] == "+":
        return best
    # A member that a class drops it may still have from the class that it derives from.
    same = [fact for fact in facts if fact.package == best.package and fact.near in (best.near, BASE)]
    return max(same, key=lambda fact: (fact.changes[-1][0] == "+", versions.parse(fact.changes[-1][1:]) or 0))


def parameters(apis: Apis, owner: str, method: str) -> list[Fact]:
    """The facts about the parameters of a method, of this class or of one that it likely derives from."""
    facts = []
    pattern = re.compile(rf"(\w+)\.{re.escape(method)}\(\w+")
    for package, api in apis.items():
        for name in api.changes:
            match = pattern.fullmatch(name) if f".{method}(" in name else None
            near = _near(owner, match[1]) if match else 0
            if near >= RELATED:
                facts.append(_fact(apis, package, name, near))
    return facts


def parameters_of_constructor(apis: Apis, owner: str) -> list[Fact]:
    """The facts about the parameters of a class's constructor."""
    names = ((package, name) for package, api in apis.items() for name in api.changes)
    return [_fact(apis, package, name, ITSELF) for package, name in names if name.startswith(f"{owner}(")]


def parameters_of_any(apis: Apis, function: str) -> list[Fact]:
    """The facts about the parameters of a function or method, where one package alone has one of that name."""
    facts, members = [], set()
    for package, api in apis.items():
        for name in api.changes:
            if name.endswith(f".{function}"):
                members.add(package)
            elif f"{function}(" in name and name.split("(")[0].rpartition(".")[2] == function:
                facts.append(_fact(apis, package, name, FAR))
    packages = {fact.package for fact in facts} | members
    if len(packages) != 1:
        return []
    return facts or [Fact(next(iter(packages)), f".{function}", ("+0",), FAR)]


def parameters_in(apis: Apis, package: str, function: str, parameter: str) -> list[Fact]:
    """The facts about a parameter of the methods of that name in a package."""
    end = f".{function}({parameter}"
    names = ending(apis, package, parameter) if package in apis else []
    return [_fact(apis, package, name, RELATED) for name in names if name.endswith(end)]


def constructors(apis: Apis, parameter: str) -> list[Fact]:
    """The facts about a parameter of the constructor of any class."""
    facts = []
    for package in apis:
        for name in ending(apis, package, parameter):
            holder, _, last = name.partition("(")
            if last == parameter and holder.isidentifier() and holder[0].isupper():
                facts.append(_fact(apis, package, name, RELATED))
    return facts


def spans(
    changes: tuple[str, ...], read: tuple[str, ...] = (), unread: tuple[str, ...] = ()
) -> tuple[list[str], list[str]]:
    """The releases without a name and the releases with it, as ranges. Unread ones before a change are in neither."""
    without: list[str] = []
    having: list[str] = []
    edge = ""
    for change in changes:
        appears, version = change[0] == "+", change[1:]
        if edge or appears:
            end = _first_unread(version, read, unread) or version
            (without if appears else having).append(f">={edge},<{end}" if edge else f"<{end}")
        edge = version
    (having if changes[-1][0] == "+" else without).append(f">={edge}")
    return [span for span in without if span != "<0"], [span.replace(">=0,", "") for span in having]


@lru_cache(maxsize=4096)
def _first_unread(edge: str, read: tuple[str, ...], unread: tuple[str, ...]) -> str:
    """The first release of those before an edge that were not read, back to the last one that was; "" for none."""
    limit = versions.parse(edge)
    if limit is None:
        return ""
    parsed = [version for version in map(versions.parse, read) if version is not None and version < limit]
    last = max(parsed, default=None)
    between = [version for version in map(versions.parse, unread) if version is not None and version < limit]
    between = [version for version in between if last is not None and version > last]
    return str(min(between)) if between else ""


def _fact(apis: Apis, package: str, name: str, near: int) -> Fact:
    api = apis[package]
    return Fact(package, name, tuple(api.changes[name].split()), near, tuple(api.read), tuple(api.unread))


def _near(owner: str, holder: str) -> int:
    """How near two classes are by their names: the same, one named after the other, a base of its kind; 0 for none."""
    if owner == holder:
        return ITSELF
    if len(holder) > 6 and owner.endswith(holder) and holder != "Trainer":
        return LIKE + len(holder) // 4
    for pattern, bases in KINDS:
        if pattern.fullmatch(owner):
            if holder in bases:
                return BASE
            words = _words(holder)
            alike = pattern.fullmatch(holder) and len(words) >= 2 and all(word in owner for word in words)
            return SIMILAR if alike else 0
    return FAR if holder in MODEL[:1] and not STEPPED.fullmatch(owner) else 0


def _words(name: str) -> set[str]:
    return set(re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+", name))
