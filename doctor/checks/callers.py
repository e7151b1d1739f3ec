"""What installed packages import from each other, against what is there: read from the sources, running nothing.

A name that another release of a package has is missed when the importing module is imported, or its function is
called. Neither metadata nor versions show it, so it may be missed in an environment that nobody has described yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from doctor.base import versions
from doctor.base.versions import Version
from doctor.case import Case
from doctor.checks import advisories, ranges
from doctor.finding import EXPLAINS, SILENT, Finding
from doctor.know import history, owners
from doctor.read import guards, imports, kept, parsing
from doctor.read.distributions import Package
from doctor.read.imports import Sources
from doctor.read.offers import Modules

# Packages whose imports are checked, beside those of owners.STACK and doctor/know/apis/.
CALLERS = ("unsloth", "unsloth-zoo", "verl", "openrlhf", "llamafactory", "axolotl", "vllm", "deepspeed", "flash-attn")
# What a run imports of packages that import their modules only when they are asked for.
ROOTS = {
    "trl": ("trl.trainer.grpo_trainer", "trl.trainer.grpo_config"),
    "transformers": ("transformers.trainer", "transformers.modeling_utils", "transformers.generation.utils"),
    "liger-kernel": ("liger_kernel.transformers",),
    "vllm": ("vllm.entrypoints.llm", "vllm.engine.arg_utils", "vllm.sampling_params"),
}
SHOWN = 4  # names in a title or a line of evidence
MOST_FILES = 400  # files of one package that are parsed


@dataclass
class Use:
    """An import that is sure to fail: in a file, when a function is called or the module is imported."""

    module: str
    name: str  # "" for the module alone
    caller: str  # the module that imports it
    function: str
    line: int
    eager: list[str] = field(default_factory=list)  # the way from what a run imports to the caller, if there is one

    @property
    def text(self) -> str:
        """What is missing: `peft.utils.save_and_load._maybe_shard`."""
        return f"{self.module}.{self.name}" if self.name else self.module

    @property
    def public(self) -> bool:
        """Is it in a function for others? The callers of a private one may know when not to call it."""
        words = f"{self.caller}.{self.function}".replace("__init__", "").replace("__call__", "").split(".")
        return bool(self.function) and not any(word.startswith("_") for word in words)

    @property
    def where(self) -> str:
        """Where it is imported, for a line of evidence."""
        return f"{self.caller}, line {self.line}" + (f", in {self.function}" if self.function else "")


def missing_imports(case: Case) -> Iterator[Finding]:
    """For each package and each other one that it imports from, the names that are not there."""
    folders = case.environment.folders
    if not folders:
        return
    own = {
        name: known
        for name, package in case.environment.packages.items()
        if _checked(case, name) and (known := imports.sources(package)) is not None
    }
    owner: dict[str, str] = {}
    for name, known in own.items():
        for top in known.tops:
            owner[top] = name if owner.get(top, name) == name else ""  # of a namespace of several: nobody's
    modules = Modules(folders)
    for (name, target), failing in _failing(case, own, owner, modules).items():
        tops = own[name].tops | own[target].tops
        uses = [use for use in failing if use.eager or use.public or _named(case.error, use)]
        uses = [use for use in uses if not _made_elsewhere(use, tops, modules) and not _known(case, use)]
        if uses:
            yield _finding(case, case.environment.packages[name], case.environment.packages[target], uses)


def _failing(
    case: Case, own: dict[str, Sources], owner: dict[str, str], modules: Modules
) -> dict[tuple[str, str], list[Use]]:
    """The imports that are sure to fail, by the distribution that imports and the one that it imports from.

    What was concluded from the same sources is kept. A name that is missing is looked up again all the same: a file
    that no RECORD names may have it since.
    """
    cache = imports.cache_folder()
    key = kept.key({name: known.digest for name, known in own.items()})
    known = kept.load(cache, key) if key else None
    failing: dict[tuple[str, str], list[Use]] = {}
    if known is not None:
        for row in known:
            if row.owner in own and row.target in own and modules.offers(row.module, row.name) is False:
                use = Use(row.module, row.name, row.caller, row.function, row.line, row.eager)
                failing.setdefault((row.owner, row.target), []).append(use)
        return failing
    for name in sorted(own):
        package = case.environment.packages[name]
        used = imports.of_package(package, own[name], cache)
        for target, candidates in sorted(_absent(used, owner, modules).items()):
            uses = list(_certain(package, used, candidates))
            _add_ways(name, uses, own[name].tops, modules)
            failing[name, target] = uses
    if key:
        rows = [
            kept.Import(*pair, use.module, use.name, use.caller, use.function, use.line, use.eager)
            for pair, uses in failing.items()
            for use in uses
        ]
        kept.save(cache, key, rows)
    return failing


def _checked(case: Case, name: str) -> bool:
    return name in owners.STACK or name in CALLERS or name in case.knowledge.apis


def _absent(used: imports.Imports, owner: dict[str, str], modules: Modules) -> dict[str, set[tuple[str, str]]]:
    """The modules and names that are not there, by the distribution that they would be of."""
    absent: dict[str, set[tuple[str, str]]] = {}
    for module, names in used.items():
        target = owner.get(module.partition(".")[0], "")
        for name in names if target else ():
            if modules.offers(module, name) is False:
                absent.setdefault(target, set()).add((module, name))
    return absent


def _certain(package: Package, used: imports.Imports, candidates: set[tuple[str, str]]) -> Iterator[Use]:
    """The imports of these names that no condition and no try keeps from running."""
    assert package.folder is not None
    paths = sorted({file for module, name in candidates for file in used[module][name]})
    for file in paths[:MOST_FILES]:
        tree = parsing.tree(package.folder / file)
        if tree is None:
            continue
        caller, inside = guards.module_of(file)
        seen = set()
        for top in sorted({module.partition(".")[0] for module, _ in candidates}):
            for statement in guards.certain(tree, inside, top):
                for name in statement.names:
                    key = (statement.module, name)
                    if statement.module.partition(".")[0] == top and key in candidates and key not in seen:
                        seen.add(key)
                        yield Use(statement.module, name, caller, statement.function, statement.line)


def _known(case: Case, use: Use) -> bool:
    """Is there a finding of an advisory about just this? It says it better."""
    error = f"ImportError: cannot import name '{use.name}' from '{use.module}'"
    about = {
        advisory["id"]
        for advisory in case.knowledge.advisories
        if use.name and advisories.quotation(advisory, error).shown == EXPLAINS
    }
    return bool(about) and any(finding.rule in about for finding in advisories.known_combinations(case))


def _made_elsewhere(use: Use, tops: set[str], modules: Modules) -> bool:
    """Does another file of the two packages set the name, or put the module in its place?"""
    if use.name:
        return modules.sets(tops, use.name)
    return modules.makes(tops, use.module.rpartition(".")[2])


def _add_ways(name: str, uses: list[Use], tops: set[str], modules: Modules) -> None:
    """Which of these modules does a run import at once?"""
    if all(use.function for use in uses):
        return
    roots = list(ROOTS.get(name, sorted(tops)))
    came = guards.reached(modules, roots)
    for use in uses:
        place = use.caller
        while not use.function and place in came:
            use.eager.insert(0, place)
            if not came[place]:
                break
            place = came[place]


def _finding(case: Case, package: Package, target: Package, uses: list[Use]) -> Finding:
    named = [use for use in uses if _named(case.error, use)]
    eager = [use for use in uses if use.eager]
    told = named or eager or uses
    lacks = list(dict.fromkeys(use.text for use in told))
    more = f" and {len(lacks) - SHOWN} more" if len(lacks) > SHOWN else ""
    later = _later(case, package, told)
    bad, good = _releases(case, target, told)
    fixed = (
        f"{package.name}>={later}" if later else f"a release of {package.name} made for {target.name} {target.version}"
    )
    earlier = [f"{target.name}{span}" for span in good]
    ranges_ = {target.name: bad} if bad else {}
    ranges_ |= {package.name: [f"<{later}"]} if later else {}
    return Finding(
        rule="missing-import",
        title=f"{package.name} {package.version} imports {', '.join(lacks[:SHOWN])}{more}, "
        f"which {target.name} {target.version} does not have",
        packages={target.name: target.version, package.name: package.version},
        severity="crash",
        confidence="certain" if named or eager else "possible",
        evidence=_evidence(told, target),
        remedy=[fixed, *earlier],
        commands=[
            ranges.install(line) for line in [_step(package.name, later) if later else _newer(target, good)] if line
        ],
        ranges=ranges_,
        decide=[] if named or eager else [_decide(told[0])],
        shown=EXPLAINS if named else SILENT,
        weight=1.5,
    )


def _evidence(uses: list[Use], target: Package) -> list[str]:
    lines = [f"{use.where}: {use.text}" for use in uses[:SHOWN]]
    way = next((use.eager for use in uses if len(use.eager) > 1), [])
    if way:
        lines.append("imported by " + " → ".join(way))
    return [*lines, f"the files of {target.name} {target.version}, read here, do not have it"]


def _decide(use: Use) -> str:
    return (
        f"whether your run calls {use.function} of {use.caller}"
        if use.function
        else f"whether your run imports {use.caller}"
    )


def _named(error: str, use: Use) -> bool:
    """Does the error miss just this?"""
    if not use.name:
        return f"No module named '{use.module}'" in error
    return f"cannot import name '{use.name}' from" in error and f"'{use.module}'" in error


def _later(case: Case, package: Package, uses: list[Use]) -> str:
    """The first release of a caller, later than its own, that imports none of these names any more; "" if unknown."""
    gone: list[Version] = []
    for use in uses:
        release, own = versions.parse(_without(case, package, use)), versions.parse(package.version)
        if release is None or own is None or own >= release:
            return ""
        gone.append(release)
    return str(max(gone)) if gone else ""


def _without(case: Case, package: Package, use: Use) -> str:
    """The first release of a caller without an import: by its own names, else by what its releases use of others."""
    fact = history.exact(case.knowledge.apis, f"{use.caller}:{use.name}", package.name)
    if not use.function and fact is not None and fact.package == package.name and fact.changes[-1][0] == "-":
        return fact.changes[-1][1:]
    return case.knowledge.uses.get(package.name, {}).get(f"{use.module}:{use.name}", "")


def _step(name: str, release: str) -> str:
    """The smallest step to a release: its own minor version."""
    version = versions.parse(release)
    return f"{name}>={release},<{version.major}.{version.minor + 1}" if version else f"{name}>={release}"


def _newer(target: Package, good: list[str]) -> str:
    """The newer releases of a package that have the name; "" where it would have to go back, and others with it."""
    for span in good:
        lowest = min((bound for bound in versions.bounds([span]) if f">={bound}" in span), default=None)
        if lowest is not None and versions.allows(f"<{lowest}", target.version):
            return f"{target.name}{span}"
    return ""


def _releases(case: Case, target: Package, uses: list[Use]) -> tuple[list[str], list[str]]:
    """The releases of a package without and with all of these names, where the history of names tells."""
    bad: list[str] = []
    good: list[list[str]] = []
    for use in uses:
        texts = (f"{use.module}:{use.name}", f"{use.text}:")
        facts = (history.exact(case.knowledge.apis, text, target.name) for text in texts)
        fact = next((fact for fact in facts if fact is not None and fact.package == target.name), None)
        if fact is None:
            return [], []
        without, having = fact.spans()
        bad += [span for span in without if versions.within(span, target.version) is not False]
        good.append(having)
    agreed = good[0] if good and all(spans == good[0] for spans in good) else []
    return list(dict.fromkeys(bad)), agreed
