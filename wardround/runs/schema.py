"""The JSON schema of `result.json`, for those who read our results with programs of their own."""

from typing import Any

from pydantic import TypeAdapter

from wardround.runs.result import FORMAT, Result


def schema_of_result() -> dict[str, Any]:
    """Draft 2020-12. Further keys are allowed everywhere: a newer version may add some."""
    found = TypeAdapter(Result).json_schema()
    parts = found["$defs"]
    for kind in found["anyOf"]:
        part = parts[kind["$ref"].rpartition("/")[2]]
        part["properties"] = {"format": {"const": FORMAT, "title": "Format"}, **part["properties"]}
        part["required"] = ["format", *part["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "wardround result.json",
        "description": f"What a wardround run came to, format {FORMAT}.",
        "anyOf": found["anyOf"],
        "$defs": parts,
    }
