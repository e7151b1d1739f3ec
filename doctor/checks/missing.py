"""Names that came and went: a name that an error misses, looked up in what the releases of its package offer.

"cannot import name X from Y", "unexpected keyword argument", "object has no attribute": doctor/know/apis/ has
the releases that brought and dropped each name, read from published wheels by scripts/api_history.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.base import aliases, versions
from doctor.case import Case
from doctor.checks import forbidden, gone, ranges
from doctor.checks.gone import Missing
from doctor.finding import EXPLAINS, POINTS, Finding
from doctor.know import history, owners
from doctor.know.history import Fact

IMPORT = re.compile(r"cannot import name '(?P<name>\w+)' from (?:partially initialized module )?'(?P<module>[\w.]+)'")
MEMBER = re.compile(r"module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'")
MODULE = re.compile(r"No module named '(?P<module>\w+(?:\.\w+)*)'")
KEYWORD = re.compile(
    r"(?<!\w)(?:(?P<owner>\w+)\.)?(?P<callee>\w+)\(\) got an unexpected keyword argument '(?P<name>\w+)'"
)
BARE = re.compile(r"(?<![\w.])__init__\(\) got an unexpected keyword argument '(?P<name>\w+)'")
OPTIONS = re.compile(r"(?:unrecognized arguments?:|not used by the HfArgumentParser: \[)(?P<options>[^\n\]]+)")
ATTRIBUTE = re.compile(r"'(?P<owner>\w+)' (?:object )?has no attribute '(?P<name>\w+)'")
MOST_OPTIONS = 3


def missing_names(case: Case) -> Iterator[Finding]:
    """The last error first: it is the one that ended the run."""
    frames, frame = owners.frames(case.error), gone.place(case.error, case.knowledge)
    done: set[str] = set()
    for missing in reversed(list(_missing(case))):
        if missing.name in done:
            continue
        done.add(missing.name)
        owner = missing.fact.package if missing.fact else missing.package
        requesting = next((package for package in reversed(frames) if package != owner), None)
        finding = dated(case, missing, requesting) if missing.fact else _undated(case, missing, requesting)
        if finding is not None:
            last, own = len(done) == 1, frame is not None and frame.package is None
            edited = last and (own or frame is None) and gone.edit(case, missing, finding, frame)
            if not edited or not own:
                gone.ask_the_caller(case, missing, finding, frame if last else None)
            yield finding


def _missing(case: Case) -> Iterator[Missing]:
    """Every name that the error misses, by the kind of error."""
    for pattern in (IMPORT, MEMBER):
        for match in pattern.finditer(case.error):
            module, name = match["module"], match["name"]
            missing = _in_module(case, module, f"{name} in {module}", f"{module}:{name}", f"{module}.{name}:")
            if missing.fact is not None or "partially initialized" not in match.group():  # circular.py has those
                yield missing
    for match in MODULE.finditer(case.error):
        missing = _in_module(case, match["module"], f"the module {match['module']}", f"{match['module']}:")
        if "." in match["module"] or missing.fact is not None:
            yield missing
    yield from _parameters(case)
    yield from _options(case)
    yield from _attributes(case)


def _in_module(case: Case, module: str, name: str, *facts: str) -> Missing:
    package = aliases.of_module(module)
    exact = (history.exact(case.knowledge.apis, fact, package) for fact in facts)
    return Missing(package, name, next((fact for fact in exact if fact is not None), None), written=facts[0])


def _parameters(case: Case) -> Iterator[Missing]:
    apis = case.knowledge.apis
    for match in KEYWORD.finditer(case.error):
        owner, callee, name = match["owner"], match["callee"], match["name"]
        package = owners.of_class(owner or callee)
        if owner and callee != "__init__":
            fact = history.of_class(apis, owner, f".{callee}({name}", package)
        elif owner or callee[:1].isupper():
            fact = history.of_class(apis, owner or callee, f"({name}", package)
            if fact is not None and package in apis and _has_its_own(case, package, owner or callee, fact):
                fact = None
        else:
            fact = history.exact(apis, f"{callee}({name}")
        package = fact.package if fact is not None else package
        if package is not None:
            own = fact is None or fact.near >= history.RELATED
            called = owner if owner and callee == "__init__" else callee
            yield Missing(package, f"the parameter {name} of {owner or callee}", fact, own, f"{called}({name}")


def _has_its_own(case: Case, package: str, owner: str, fact: Fact) -> bool:
    """Has a trainer a constructor of its own? It does not hand on what the one that it derives from takes."""
    own = case.knowledge.apis[package].parameters
    return fact.package != package and owner.endswith("Trainer") and owner in own


def _options(case: Case) -> Iterator[Missing]:
    """A parameter of a constructor that the error does not name, or an option of a command line made from one."""
    for match in BARE.finditer(case.error):
        fact = _of_any_constructor(case, match["name"])
        if fact is not None:
            yield Missing(fact.package, f"the parameter {match['name']} of {fact.name.partition('(')[0]}", fact)
    for match in OPTIONS.finditer(case.error):
        for option in re.findall(r"--?([a-z][\w-]+)", match["options"])[:MOST_OPTIONS]:
            fact = _of_any_constructor(case, option.replace("-", "_"))
            if fact is not None:
                yield Missing(fact.package, f"the option {option} of {fact.name.partition('(')[0]}", fact)


def _of_any_constructor(case: Case, parameter: str) -> Fact | None:
    """The class whose constructor lacks a parameter, where what is installed leaves only one package."""
    facts = history.constructors(case.knowledge.apis, parameter)
    lacking = [fact for fact in facts if fact.in_release(case.version(fact.package) or "") is False]
    lacking = lacking or [fact for fact in facts if not fact.in_release(case.version(fact.package) or "")]
    return lacking[0] if len({fact.package for fact in lacking}) == 1 else None


def _attributes(case: Case) -> Iterator[Missing]:
    for match in ATTRIBUTE.finditer(case.error):
        owner, name = match["owner"], match["name"]
        package = owners.of_class(owner)
        fact = history.of_class(case.knowledge.apis, owner, f".{name}", package)
        package = fact.package if fact is not None else package
        if package is not None:
            own = fact is None or fact.near == history.ITSELF
            yield Missing(package, f"{name} of {owner}", fact, own)


def _undated(case: Case, missing: Missing, requesting: str | None) -> Finding | None:
    """A name whose releases are not known."""
    package, version = missing.package, case.version(missing.package)
    if version is None and requesting is None and package not in (*case.knowledge.apis, *owners.STACK):
        return None
    requesting = requesting or owners.TOGETHER.get(package)
    packages = case.versions(package, requesting)
    way = _outside_what_was_read(case, package, version, missing.written)
    against = forbidden.by(case, package, way) if way else ""
    way = None if against else way
    together = f"install versions of {' and '.join(packages)} that belong together"
    return Finding(
        rule="missing-name",
        title=f"{package} {version or ''}".strip()
        + f" does not have {missing.name}"
        + (f", which {requesting} asks for" if requesting else ""),
        packages=packages,
        severity="crash",
        confidence="possible",
        evidence=[
            f"the error names it; {package} {version or '(version not given)'}",
            *([f"{against}: no way out"] if against else []),
        ],
        remedy=[f"{package}{way}, or code that does not ask for it", together] if way else [together],
        decide=[f"which release of {package} has {missing.name}"],
        ranges={package: ranges.outside(way)} if way else {},
        shown=POINTS,
        weight=0.2 if (way or against) and version else 0.0,  # the release at fault is there
    )


def _outside_what_was_read(case: Case, package: str, version: str | None, written: str) -> str | None:
    """Where a name may be whose releases are not known.

    Every release that was read has it, or none: it would be known otherwise. Which of both, the names of the newest one
    tell. Without them: of a release that was read it is said to be missing, so older ones may have it; an older one may
    be too old for it.
    """
    parsed = [parsed for release in case.knowledge.requires(package) if (parsed := versions.parse(release)) is not None]
    if not parsed:
        return None
    own = versions.parse(version) if version else None
    if own is not None and own > max(parsed):
        return None
    among = own is not None and own >= min(parsed)
    always = case.knowledge.apis[package].always(written) if package in case.knowledge.apis else None
    if always is None:
        return f"<{min(parsed)}" if among else f">={min(parsed)}"
    if always:
        return None if among else f">={min(parsed)}"  # it says of itself that it lacks what it has
    return f"<{min(parsed)}" if among or own is None else None


def dated(case: Case, missing: Missing, requesting: str | None = None) -> Finding | None:
    """A name whose releases are known. None where the installed release has it: it is missing for another reason."""
    fact = missing.fact
    assert fact is not None
    package, version = fact.package, case.version(fact.package)
    packages = case.versions(package, requesting)
    if version is not None and fact.in_release(version):
        return None if missing.own or not fact.since else _new(missing, fact, packages)
    without, having = fact.spans()
    bad = [span for span in without if version is None or versions.within(span, version) is not False]
    lacks = version is not None and fact.in_release(version) is False
    gap = fact.gap(version) if version is not None else ("", "")
    if all(gap):  # the error says what the releases around it leave open
        lacks, bad = True, [f">{gap[0]},<{gap[1]}", *without]
        having = [_up_to(gap[0], span) if versions.within(span, version or "") else span for span in having]
    first = fact.begins_after(version) if version is not None else ""
    if first:  # it came between the installed release and that one
        lacks, bad = True, [f"<{first}"]
        having = [",".join(filter(None, (f">={first}", having[0]))), *having[1:]]
    sure = lacks and fact.near >= history.RELATED
    changes = (change for change in fact.changes if change != "+0")
    releases = "; ".join(f"{'since' if change[0] == '+' else 'gone in'} {change[1:]}" for change in changes)
    against = [forbidden.by(case, package, span) for span in having]
    having = [span for span, word in zip(having, against) if not word]
    back = " or ".join(f"{package}{span}" for span in having)
    asks = requesting or "what asks for it"
    if gone.is_gone(fact, version):  # what asks for an old name is the older party
        remedies = [
            f"a later release of {asks}, or code that does without it",
            *([f"{gone.BACK}{back}"] if back else []),
        ]
    else:
        other = f"{f'a release of {requesting}' if requesting else 'code'} that does not ask for it"
        remedies = [f"{back}, or {other}" if back else other]
    return Finding(
        rule="moved-name",
        title=f"{package} {version or ''}".strip() + f" does not have {missing.name}",
        packages=packages,
        severity="crash",
        confidence="likely" if sure and having else "possible",
        evidence=[
            f"in the published releases: {releases}",
            *_unread(fact, version),
            "the error names it",
            *(f"{word}: no way out" for word in against if word),
        ],
        remedy=remedies,
        ways=[{package: span} for span in reversed(having)],
        ranges={package: bad or without},
        shown=EXPLAINS,
        weight=1.0 if sure else 0.1,
    )


def _up_to(release: str, span: str) -> str:
    """A range that ends with a release."""
    return ",".join([*(part for part in span.split(",") if not part.startswith("<")), f"<={release}"])


def _unread(fact: Fact, version: str | None) -> list[str]:
    """What is not known of a release that was not read."""
    below, above = fact.gap(version) if version else ("", "")
    if not below and not above:
        return []
    around = f"between {below} and {above}, which differ" if below and above else "beside the releases that were read"
    return [f"{fact.package} {version} itself was not read: it is {around}"]


def _new(missing: Missing, fact: Fact, packages: dict[str, str | None]) -> Finding:
    """The package expects of a class derived from its own what its own has only since a release."""
    package = fact.package
    return Finding(
        rule="new-name",
        title=f"{package} {packages[package]} expects {missing.name}, which it has since {fact.since}",
        packages=packages,
        severity="crash",
        confidence="possible",
        evidence=[f"in the published releases: since {fact.since}", "the error names it"],
        remedy=[f"{package}<{fact.since}, or a later version of the code that derives from it"],
        ways=[{package: f"<{fact.since}"}],
        decide=["whether the class is of your own code, or of a model's, written for an earlier release"],
        ranges={package: [f">={fact.since}"]},
        shown=POINTS,
    )
