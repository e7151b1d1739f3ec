"""What people say of known vulnerabilities, as OpenVEX (https://openvex.dev): one file, for all stacks.

A match of versions is no more than a question: it becomes a statement `under_investigation`. A person changes it to
`not_affected` with a justification, or to `affected` with an action. Such statements stay as they were written.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from builder.base import errors, reading
from builder.base.text import word
from builder.upgrade.watch.exposure import Exposure

CONTEXT = "https://openvex.dev/ns/v0.2.0"
OPEN = "under_investigation"


class _Kept(BaseModel):
    """What is read of an object; all else of it is kept as it is."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)


class Vulnerability(_Kept):
    """A vulnerability, under all of its names."""

    name: str
    aliases: list[str] = []


class Product(_Kept):
    """A package, by its purl."""

    id: str = Field(alias="@id")


class Statement(_Kept):
    """What is said of a vulnerability of some packages."""

    vulnerability: Vulnerability
    products: list[Product]
    status: Literal["not_affected", "affected", "fixed", "under_investigation"]
    timestamp: str = ""
    justification: str = ""
    impact_statement: str = ""
    action_statement: str = ""

    def about(self, names: Collection[str], purl: str) -> bool:
        """Is it about this package and a vulnerability of one of these names?"""
        own = {self.vulnerability.name, *self.vulnerability.aliases}
        return not own.isdisjoint(names) and any(product.id == purl for product in self.products)


class Document(_Kept):
    """A file of statements."""

    context: str = Field(CONTEXT, alias="@context")
    id: str = Field("", alias="@id")
    author: str = "vetted watch"
    role: str = "Document Creator"
    timestamp: str = ""
    version: int = 1
    statements: list[Statement] = []


def read(path: Path) -> Document:
    """The file as people left it; an empty document where there is none. Raises BadInputError."""
    try:
        content = reading.json_object(path, str(path), f"correct {word(path)}")
    except FileNotFoundError:
        return Document.model_validate({})
    try:
        document = Document.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise errors.BadInputError(
            f"{path} is no OpenVEX document: {place}: {first['msg']}", next_step=f"correct {word(path)}"
        ) from error
    for statement in document.statements:
        _require_reason(path, statement)
    return document


def _require_reason(path: Path, statement: Statement) -> None:
    """As OpenVEX demands: who says that nothing has to be done says why."""
    if statement.status == "not_affected" and not (statement.justification or statement.impact_statement):
        raise errors.BadInputError(
            f"{path}: {statement.vulnerability.name} is not_affected, and nobody says why",
            next_step="add a justification or an impact_statement to that statement",
        )


def judged(document: Document, exposures: Iterable[Exposure]) -> list[Exposure]:
    """The exposures with what people said of all of their packages: the first statement that a person made counts."""
    answers = []
    for exposure in exposures:
        statuses = [_status(document, exposure.match.names, purl) for purl in exposure.purls]
        agreed = statuses[0] if statuses and all(status == statuses[0] for status in statuses) else ""
        answers.append(replace(exposure, judged=agreed))
    return answers


def _status(document: Document, names: Collection[str], purl: str) -> str:
    mine = (each.status for each in document.statements if each.status != OPEN and each.about(names, purl))
    return next(mine, "")


def updated(
    document: Document, exposures: Sequence[Exposure], inspected: Collection[str], day: datetime.date
) -> Document:
    """The document with a question for each exposure that no person judged, and without those that are settled.

    `inspected`: the purls of all stacks that were looked at; of others, every statement stays.
    """
    kept = [each for each in document.statements if each.status != OPEN or not _inspected(each, inspected)]
    questioned: dict[tuple[str, ...], dict[str, None]] = {}
    for exposure in exposures:
        for purl in exposure.purls:
            if not any(each.about(exposure.match.names, purl) for each in kept):
                questioned.setdefault(exposure.match.names, {})[purl] = None
    earlier = {_key(each): each for each in document.statements if each.status == OPEN}
    new = [_question(names, list(purls), day) for names, purls in sorted(questioned.items())]
    questions = [earlier.get(_key(each), each) for each in new]
    statements = [*kept, *questions]
    if statements == document.statements:
        return document
    fields: dict[str, Any] = {"statements": statements, "timestamp": f"{day}T00:00:00Z"}
    if document.id:
        fields["version"] = document.version + 1
    else:
        fields["id"] = uuid.uuid5(uuid.NAMESPACE_OID, f"{day} {questions}").urn
    return document.model_copy(update=fields)


def _key(statement: Statement) -> tuple[str, ...]:
    names = statement.vulnerability.name, *statement.vulnerability.aliases
    return (*names, *(product.id for product in statement.products))


def _inspected(statement: Statement, purls: Collection[str]) -> bool:
    return all(product.id in purls for product in statement.products)


def _question(names: Sequence[str], purls: Sequence[str], day: datetime.date) -> Statement:
    return Statement.model_validate(
        {"vulnerability": {"name": names[0], "aliases": list(names[1:])}, "status": OPEN,
         "products": [{"@id": purl} for purl in purls], "timestamp": f"{day}T00:00:00Z"}
    )  # fmt: skip


def to_json(document: Document) -> str:
    """The file. Empty fields are left out: readers take them for words."""
    content = document.model_dump(by_alias=True, exclude_unset=False)
    for statement in content["statements"]:
        for key in ("timestamp", "justification", "impact_statement", "action_statement"):
            if not statement[key]:
                del statement[key]
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
