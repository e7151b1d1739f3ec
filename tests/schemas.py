"""What public schemas say against a document. Their validator takes seconds to import: it is imported where used."""

from __future__ import annotations

from typing import Any


def bill_error(text: str) -> str:
    """What CycloneDX's own schema says against a bill of materials; nothing where it fits."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) or "")


def schema_error(schema: dict[str, Any]) -> str:
    """What is wrong with a JSON schema."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return str(error.message)
    return ""


def error(data: object, schema: dict[str, Any]) -> str:
    """The first thing that a JSON schema says against a document; nothing where it fits."""
    from jsonschema import Draft202012Validator

    return next((str(error.message) for error in Draft202012Validator(schema).iter_errors(data)), "")
