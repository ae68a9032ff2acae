"""What the site says of routes and settings, made from the code when the site is built.

A page has a mark, `<!-- made from the code: http -->`, in whose place `setup` puts the text
of that name. So a page cannot say what the code does not.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click
from sphinx.application import Sphinx

from reservation_expiry.api.cli.serve import serve, worker
from reservation_expiry.api.openapi import JSON, PROBLEM, document

MARK = re.compile(r"<!-- made from the code: (\w+) -->")
Row = Sequence[str]


def http_reference() -> str:
    """Every route, and every kind of document that they take and answer."""
    described = json.loads(document())
    lines = ["## Routes", ""]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            lines += [f"### {method.upper()} {path}", "", *_operation(operation)]
    lines += ["## Documents", ""]
    for name, schema in described["components"]["schemas"].items():
        lines += [f"### {name}", "", *_document(schema)]
    return "\n".join(lines)


def _operation(operation: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{operation['summary']}.", "")
    query = [f"`{one['name']}`" for one in operation["parameters"] if one["in"] == "query"]
    if query:
        yield f"- query: {', '.join(query)}"
    for one in operation["parameters"]:
        if one["in"] == "header":
            yield f"- header `{one['name']}`: {one.get('description', 'a string')}"
    if "requestBody" in operation:
        yield f"- body: {_content(operation['requestBody']['content'])}"
    for status, answer in sorted(operation["responses"].items()):
        shown = f": {_content(answer['content'])}" if "content" in answer else ""
        yield f"- **{status}** {answer['description']}{shown}"
    yield ""


def _content(content: Mapping[str, Any]) -> str:
    """The kind of document, each way of writing it, and an example if there is one."""
    found = []
    for media_type, described in content.items():
        kind = "" if media_type in (JSON, PROBLEM) else f", `{media_type}`"
        example = described.get("example")
        shown = f", such as `{json.dumps(example)}`" if example else ""
        found.append(f"{_type(described.get('schema', {}))}{kind}{shown}")
    return " or ".join(found)


def _document(schema: Mapping[str, Any]) -> Iterator[str]:
    if "description" in schema:
        yield from (schema["description"], "")
    if "properties" not in schema:
        yield from (f"{_type(schema)}.", "")
        return
    required = schema.get("required", ())
    fields = [
        (f"`{name}`", _type(field), "" if name in required else _default(field))
        for name, field in schema["properties"].items()
    ]
    if fields:
        yield from _table(("field", "is", ""), fields)


def _default(field: Mapping[str, Any]) -> str:
    return f"else `{json.dumps(field['default'])}`" if "default" in field else "may be left out"


def _type(schema: Mapping[str, Any]) -> str:
    """What a schema allows, in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"a list of {_type(schema['items'])}"
    words = [schema.get("type", "anything")]
    for least, most, unit in (("minimum", "maximum", ""), ("minLength", "maxLength", " letters")):
        if least in schema:
            words.append(f"{schema[least]} to {schema[most]}{unit}")
    if "pattern" in schema:
        words.append(f"`{schema['pattern']}`")
    return ", ".join(words)


def settings_reference() -> str:
    """The options of the commands that serve, and the variables that stand for them."""
    lines: list[str] = []
    for command in (serve, worker):
        lines += [f"## {command.name}", ""]
        with click.Context(command) as context:
            options = [one for one in command.params if isinstance(one, click.Option)]
            lines += [*(_setting(option, context) for option in options), ""]
    return "\n".join(lines)


def _setting(option: click.Option, context: click.Context) -> str:
    names = [*option.opts, *option.secondary_opts, *([option.envvar] if option.envvar else [])]
    default = option.get_help_extra(context).get("default")
    said = [", ".join(f"`{name}`" for name in names) + (f", else `{default}`." if default else ".")]
    said.append((option.help or "").replace("<", "&lt;"))
    if isinstance(option.type, click.IntRange):
        said.append(f"{option.type.min} to {option.type.max}.")
    if isinstance(option.type, click.Choice):
        said.append(f"One of {', '.join(option.type.choices)}.")
    return f"- {' '.join(filter(None, said))}"


def _table(heading: Row, rows: Sequence[Row]) -> Iterator[str]:
    """A table in Markdown, and the empty line after it."""
    for row in (heading, ["---"] * len(heading), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


TEXTS: Mapping[str, Callable[[], str]] = {"http": http_reference, "settings": settings_reference}


def _fill(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = MARK.sub(lambda mark: TEXTS[mark[1]](), source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True}
