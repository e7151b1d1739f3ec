"""The main branch of a package: does the stack pass with its newest commit, and if not, which commit broke it?

The commit is packed as `vetted extend` packs one, and takes the place of the pinned release in a copy of the stack. The
project's own stack stays as it is: its lock holds releases.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from packaging.utils import canonicalize_name, parse_sdist_filename

from builder.base import errors, machine, process, seal, sources
from builder.base.project import Project, remove, sha256, sha256_file, write
from builder.base.text import word
from builder.bisect import ddmin
from builder.certify import certify
from builder.certify.certificate import ProbeResult, Statement
from builder.certify.certify import Options
from builder.image import render, sdist
from builder.intent import stack
from builder.lock import archives, kernels, lockfile, resolve, solver
from builder.lock import commit as commits
from builder.lock.commit import FETCH, QUIET
from builder.lock.lockfile import Lock, Own
from builder.lock.requirements import Commit
from builder.upgrade import aside, candidate
from builder.upgrade.aside import Aside
from builder.upgrade.recertification import Progress

HEAD = "refs/vetted/head"
WITH_PASSWORD = re.compile(r"^https?://[^/\s]*@|//[^/\s]*:[^/\s]*@", re.IGNORECASE)  # a token is a name alone
State = Literal["green", "red", "unclear"]


@dataclass(frozen=True)
class Source:
    """The repository of a package: an address that git knows, or a folder."""

    package: str
    address: str


@dataclass
class Mainline:
    """What became of the newest commit. `good`: the commit that the search began at; `suspects`: the first bad one, the
    last, and before it those that could not be tried. `trials`: how many commits ran."""

    package: str
    head: str
    outcome: State = "unclear"
    version: str = ""
    explanation: str = ""
    red: list[ProbeResult] = field(default_factory=list)
    good: str = ""
    suspects: list[str] = field(default_factory=list)
    no_culprit: str = ""
    trials: int = 0
    subjects: Mapping[str, str] = field(default_factory=dict)  # commit -> its first line

    def __str__(self) -> str:
        what = f"{self.package} at {self.head[:12]} (main)"
        if self.outcome == "green":
            return f"{what}: passes the suite"
        if self.outcome == "unclear":
            return f"{what}: could not be tried: {self.explanation}"
        verdict = f"{what}: does not pass {', '.join(probe.name for probe in self.red)}"
        if not self.suspects:
            return f"{verdict}; the commit was not found: {self.no_culprit}"
        named = ", ".join(f"{each[:12]} {self.subjects.get(each, '')}".strip() for each in self.suspects)
        return f"{verdict} since {'one of ' if len(self.suspects) > 1 else ''}{named}"


def parse(text: str) -> Source:
    """`trl=ADDRESS`. Raises BadInputError."""
    package, _, address = text.partition("=")
    if not package or not address:
        raise errors.BadInputError(f"{text!r} is not PACKAGE=REPOSITORY", next_step="--main trl=https://HOST/PATH")
    if user := WITH_PASSWORD.search(address):
        alone = ":" not in user[0].partition("//")[2]
        what = "a user name, which may be a token" if alone else "a password or a token"
        raise errors.BadInputError(
            f"the address of {package} contains {what}: every user of this machine could read it",
            next_step="remove the user from the address, up to the @; git's credential helper or ~/.netrc has it",
        )
    folder = Path(address)
    return Source(canonicalize_name(package), folder.resolve().as_uri() if folder.is_dir() else address)


def run(home: Project, lock: Lock, source: Source, options: Options, scratch: Path, progress: Progress) -> Mainline:
    """Try the newest commit of a repository; where it is red, search for the commit. Raises NetworkError."""
    if source.package not in lock.stack.packages:
        raise errors.BadInputError(
            f"{lock.name} pins no {source.package}", next_step=f"vetted show {word(lock.name)}, for what it pins"
        )
    progress.say(f"fetching {source.package}")
    repository = home.state / "watch" / "repositories" / f"{source.package}.git"
    _fetch(repository, source, scratch)
    search = _Search(home, lock, source, repository, options, scratch, progress)
    result = Mainline(source.package, _git(repository, "rev-parse", HEAD))
    _try_head(search, result)
    journal = home.state / "watch" / lock.name / f"main-{source.package}.json"
    identity = f"{lock.digest} {sources.digest(home.smoke)}"
    if result.outcome == "green":
        write(journal, (content := json.dumps({"identity": identity, "green": result.head})) + "\n", scratch)
        seal.put(journal.with_suffix(".seal"), _sealed(journal), sha256(content.encode()), scratch)
    elif result.outcome == "red":
        _blame(search, result, _last_green(journal, identity))
    result.trials = search.trials
    return result


def _fetch(repository: Path, source: Source, scratch: Path) -> None:
    """Bring the repository up to date. One that is not as we left it is made again: it may name programs to start."""
    sealed, what = repository.with_suffix(".seal"), f"repository of {source.package}"
    if not (repository.is_dir() and not repository.is_symlink() and seal.intact(sealed, what, seal.tree(repository))):
        remove(repository)
        repository.parent.mkdir(parents=True, exist_ok=True)
        process.check("git init", ["git", "init", "--quiet", "--bare", "--template=", str(repository)], env=QUIET)
    refs = (f"+HEAD:{HEAD}", "+refs/tags/*:refs/tags/*")
    as_it_is = ("-c", "gc.auto=0", "-c", "maintenance.auto=false")  # nothing changes it afterwards
    argv = ["git", "-C", str(repository), *as_it_is, "fetch", "--quiet", "--no-tags", "--", source.address, *refs]
    try:
        result = process.run(argv, env=QUIET, tool=FETCH)
    finally:  # a fetch that fails leaves these alone: without them, the seal of what was there before holds
        for path in (repository / "FETCH_HEAD", *repository.glob("objects/pack/tmp_*")):
            path.unlink(missing_ok=True)
    if result.returncode != 0:
        raise errors.NetworkError(
            f"{source.package}: the repository did not answer\n{result.output.strip()[-400:]}",
            next_step="git ls-remote with its address; credentials go into ~/.netrc or git's credential helper",
        )
    seal.put(sealed, what, seal.tree(repository), scratch)


def _git(repository: Path, *argv: str) -> str:
    """What git prints; "" when it fails."""
    result = process.run(["git", "-C", str(repository), *argv], env=QUIET)
    return result.stdout.strip() if result.returncode == 0 else ""


def _sealed(journal: Path) -> str:
    return f"{journal.stem} of {journal.parent.name}"


def _last_green(journal: Path, identity: str) -> str:
    """The last commit that passed, as this user left it; "" where that is not known."""
    try:
        text = journal.read_text().strip()
        content = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return ""
    same = isinstance(content, dict) and content.get("identity") == identity
    same = same and seal.intact(journal.with_suffix(".seal"), _sealed(journal), sha256(text.encode()))
    return str(content.get("green", "")) if same else ""


@dataclass
class _Search:
    """Commits of one repository, tried in copies of one stack. A copy is removed before the next is made."""

    home: Project
    lock: Lock
    source: Source
    repository: Path
    options: Options
    scratch: Path
    progress: Progress
    trials: int = 0

    def examine(self, commit: str, probes: Sequence[str] = ()) -> tuple[Statement, str]:
        """The suite, or these probes of it, with a commit ("": the pinned release), and its version.

        Raises VettedError.
        """
        self.trials += 1
        self.progress.say(f"{self.source.package} at {commit[:12] or 'its release'}")
        own = self.scratch / f"trial-{self.trials}"
        own.mkdir()
        copy = aside.make(self.home, self.lock.name, own / "copy")
        try:
            new = self._locked(copy, commit, own) if commit else self.lock
            write(copy.dockerfile(new.name), render.dockerfile(copy, new), own)
            if kernels.stale(copy, new):
                kernels.record(copy, new, own, self.progress.say)
            options = replace(self.options, force=True, probes=tuple(probes))
            ran = certify.run(copy, new, options, own, self.progress.step, self.progress.event)
            return ran.statement, new.versions[self.source.package]
        finally:
            remove(copy.state)
            remove(own)

    def _locked(self, copy: Aside, commit: str, scratch: Path) -> Lock:
        """The lock of a copy with a commit in it."""
        line = f"{self.source.package} @ git+{self.repository.resolve().as_uri()}@{commit}"
        archive = commits.archive(Commit(line), copy.stack_dir(self.lock.name) / "sources", scratch)
        version = parse_sdist_filename(archive.name)[1]
        candidate.write_lock(copy, self.lock, [f"{self.source.package}=={version}"], scratch)
        return self._built(copy, archive, scratch)

    def _built(self, copy: Aside, archive: Path, scratch: Path) -> Lock:
        """The lock with a wheel in the archive's place: like any foreign code, it is built without a network."""
        source = lockfile.load(copy, self.lock.name)
        entry = next(entry for entry in source.python if entry.name == self.source.package)
        if f"sha256:{entry.sha256}" != sha256_file(archive):
            raise errors.BadInputError(
                f"{entry.pin} is a release of an index, too, and uv took that",
                cause="the main branch has not moved on to the next version",
                next_step="wait until it has",
            )
        tools = archives.fetch(copy, source.stack, source.build, scratch, self.progress.say)
        venv = scratch / "venv"
        argv = [machine.uv_binary(), "venv", "--quiet", "--no-project", "--python", source.stack.python, str(venv)]
        process.check("making an environment to build in", argv, env=machine.uv_offline())
        own = replace(source, own=Own(source=(entry.name,)))
        wheel = sdist.build({entry: archive}, tools, venv, scratch, self.progress.say, own)[entry]
        shutil.move(wheel, archive.with_name(wheel.name))
        archive.unlink()
        resolve.make(copy, source.name, stack.load(copy, source.name), scratch, None)
        return lockfile.load(copy, source.name)

    def state(self, commit: str, probe: str) -> State:
        """The outcome of one probe with a commit, or with the pinned release."""
        try:
            statement, _ = self.examine(commit, [probe])
        except (errors.NetworkError, errors.StorageError, errors.MissingToolError):
            raise
        except errors.VettedError:
            return "unclear"
        outcome = next((each.outcome for each in statement.predicate.probes if each.name == probe), "not-run")
        return "green" if outcome == "passed" else "unclear" if outcome == "not-run" else "red"


def _try_head(search: _Search, result: Mainline) -> None:
    try:
        statement, result.version = search.examine(result.head)
    except (errors.NetworkError, errors.StorageError, errors.MissingToolError):
        raise
    except errors.VettedError as error:
        what, _, rest = error.what.partition("\n")
        result.explanation = solver.in_short(rest) if "no solution" in what else error.what
        return
    result.red = [probe for probe in statement.predicate.probes if probe.outcome not in ("passed", "not-run")]
    result.outcome = "red" if result.red or not statement.predicate.passedTests else "green"


def _blame(search: _Search, result: Mainline, green: str) -> None:
    """Search between the last commit that is known to pass, else the pinned release, and the newest one."""
    version = search.lock.versions[search.source.package].partition("+")[0]
    names = [*([green] if green else []), f"refs/tags/v{version}", f"refs/tags/{version}"]
    known = [base for name in names if (base := _git(search.repository, "merge-base", name, HEAD))]
    if not known or not result.red:
        result.no_culprit = f"its repository has no tag v{version}" if result.red else "no probe ran"
        return
    result.good, probe = known[0], result.red[0].name
    # A commit at a release has its version, and could not be told from it: the release itself is asked.
    if result.good != green and (begun := search.state("", probe)) != "green":
        result.no_culprit = f"{probe} is {begun} with {search.source.package} {version} already"
        return
    history = _git(search.repository, "rev-list", "--first-parent", "--reverse", f"{result.good}..{HEAD}").split()
    states: dict[str, State] = {result.head: "red"}

    def state(commit: str) -> State:
        if commit not in states:
            states[commit] = search.state(commit, probe)
        return states[commit]

    (first,) = ddmin.smallest(history, lambda part: bool(part) and state(part[-1]) == "red")
    last = history.index(first)
    begin = last
    while begin > 0 and state(history[begin - 1]) == "unclear":
        begin -= 1
    result.suspects = history[begin : last + 1]
    result.subjects = {each: _git(search.repository, "log", "-1", "--format=%s", each) for each in result.suspects}
