"""The reference of the HTTP API as a Markdown page, from its OpenAPI document."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

_PROBLEMS_FROM = "400"
_BOUNDS = {
    "minimum": "from {}",
    "maximum": "to {}",
    "maxLength": "{} characters at most",
    "minItems": "{} at least",
    "maxItems": "{} at most",
    "default": "default `{}`",
}


def api_page(document: Mapping[str, Any]) -> str:
    """Return the page: an operation each, by function, then the documents that they answer with."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield f"# HTTP API, reference\n\nVersion {info['version']}, from [openapi.json](../openapi.json)."
    yield "[HTTP API](../http/README.md) explains it, with examples.\n"
    operations = [
        (path, method, described)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
        if method != "head"
    ]
    for tag in document["tags"]:
        yield f"## {tag['name']}\n"
        for path, method, described in operations:
            if tag["name"] in described["tags"]:
                yield from _operation(path, method, described)
    yield "## Documents\n"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"### {name}\n"
        yield from _document(schema)


def _operation(path: str, method: str, described: Mapping[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`\n\n{described['summary']}\n"
    if parameters := described.get("parameters"):
        yield "| parameter | in | type | meaning |\n| --- | --- | --- | --- |"
        for each in parameters:
            kind = kind_of(each["schema"]) + ("" if each.get("required") else ", optional")
            yield _row(f"`{each['name']}`", each["in"], kind, each.get("description", ""))
        yield ""
    for media_type, content in described.get("requestBody", {}).get("content", {}).items():
        yield f"Body, `{media_type}`: {kind_of(content.get('schema', {}))}.\n"
        yield from _document(content.get("schema", {}))
    problems = [status for status in described["responses"] if status >= _PROBLEMS_FROM]
    for status, answer in described["responses"].items():
        if status >= _PROBLEMS_FROM:
            continue
        contents = [
            f"`{media_type}`: {kind_of(content.get('schema', {}))}"
            for media_type, content in answer.get("content", {}).items()
        ]
        yield f"- **{status}** {answer['description']}" + "".join(f"; {each}" for each in contents)
    yield f"- **{', '.join(problems)}** [problems](../http/errors.md)\n"


def _document(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of an object's fields; of an array, of its entries'. Others are said in a few words."""
    found = schema.get("items", schema) if schema.get("type") == "array" else schema
    properties = found.get("properties")
    if not properties:
        if "$ref" not in schema and found is schema:
            yield f"{kind_of(schema)}\n"
        return
    yield "| field | type | meaning |\n| --- | --- | --- |"
    for name, field in _flat(found):
        yield _row(f"`{name}`", kind_of(field), field.get("description", ""))
    yield ""


def _flat(schema: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield fields by path: `records[].key`."""
    for name, field in schema.get("properties", {}).items():
        yield before + name, field
        inner, suffix = (field.get("items", {}), "[].") if "items" in field else (field, ".")
        yield from _flat(inner, before + name + suffix)


def kind_of(schema: Mapping[str, Any]) -> str:
    """Return a schema in a few words of Markdown."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if either := schema.get("oneOf") or schema.get("anyOf"):
        return " or ".join(kind_of(each) for each in either)
    kind = schema.get("type", "object" if "properties" in schema else "any JSON")
    text = " or ".join(kind) if isinstance(kind, list) else kind
    if "items" in schema:
        text += f" of {kind_of(schema['items'])}"
    bounds = [
        words.format(_shown(schema[name]))
        for name, words in _BOUNDS.items()
        if schema.get(name) not in (None, "")
    ]
    return f"{text} ({', '.join(bounds)})" if bounds else text


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _row(*cells: str) -> str:
    return "| " + " | ".join(each.replace("|", "\\|").replace("\n", " ") for each in cells) + " |"
