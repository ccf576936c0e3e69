"""Results as plain values, checked against the schema on the way, and plain values as results."""

import json
from functools import cache
from typing import Any

from wardround.runs.fields import unknown_keys
from wardround.runs.json_files import as_json
from wardround.runs.read import parse_result
from wardround.runs.result import Result, values_of
from wardround.runs.schema import schema_of_result

schema = cache(schema_of_result)
"""Made once in a process: hundreds of tests look at it."""


def plain(result: Result) -> dict[str, Any]:
    """The result as somebody reads it from the file; whatever made it, it keeps to the schema and is read whole."""
    values: dict[str, Any] = json.loads(as_json(values_of(result)))
    assert broken_rules(schema(), values) == []
    assert unknown_keys(result) == [], "keys that the format does not describe"
    assert json.loads(as_json(values_of(parse_result(values).result))) == values
    return values


def parsed(values: dict[str, Any], kind: str = "") -> Any:
    """What the reader makes of these values."""
    return parse_result({**({"kind": kind} if kind else {}), **values}).result


def broken_rules(schema: dict[str, Any], value: Any, rule: Any = None, at: str = "") -> list[str]:
    """The words of JSON Schema that ours uses, read apart from pydantic; one that is not known here is an error."""
    rule = schema if rule is None else rule
    known = {"$ref", "$defs", "$schema", "anyOf", "type", "properties", "required", "additionalProperties", "items"}
    assert set(rule) <= known | {"const", "enum", "title", "description", "default"}, set(rule) - known
    if "$ref" in rule:
        return broken_rules(schema, value, schema["$defs"][rule["$ref"].removeprefix("#/$defs/")], at)
    if "anyOf" in rule:
        found = [broken_rules(schema, value, one, at) for one in rule["anyOf"]]
        return [] if [] in found else min(found, key=len)
    wrong = [f"{at}: {value!r}"] if "enum" in rule and value not in rule["enum"] else []
    wrong += [f"{at}: {value!r}"] if "const" in rule and value != rule["const"] else []
    kinds: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "integer": int,
        "number": (int, float),
    }
    said = [rule["type"]] if isinstance(rule.get("type"), str) else rule.get("type", ["any"])
    fits = [
        kind == "any"
        or (kind == "null" and value is None)
        or (isinstance(value, kinds.get(kind, ())) and (kind == "boolean" or not isinstance(value, bool)))
        for kind in said
    ]
    if not any(fits):
        return [*wrong, f"{at}: {value!r} is no {said}"]
    if isinstance(value, dict):
        wrong += [f"{at}: no {key}" for key in rule.get("required", ()) if key not in value]
        own, further = rule.get("properties", {}), rule.get("additionalProperties")
        for key, inner in value.items():
            inside = own.get(key, further if isinstance(further, dict) else {})
            wrong += broken_rules(schema, inner, inside, f"{at}/{key}") if inside else []
    if isinstance(value, list) and isinstance(rule.get("items"), dict) and rule["items"]:
        wrong += [one for i, x in enumerate(value) for one in broken_rules(schema, x, rule["items"], f"{at}/{i}")]
    return wrong
