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
from reservation_expiry.api.openapi import document

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
    yield from (f"{operation['summary'].capitalize()}.", "")
    taken = [
        (f"`{one['name']}`", one["in"], one.get("description", ""))
        for one in operation["parameters"]
    ]
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]
        taken.append((_type(content["schema"]), "body", _example(content)))
    if taken:
        yield from _table(("takes", "in", ""), taken)
    answers = [
        (status, answer["description"], _type(_only(answer.get("content", {})).get("schema", {})))
        for status, answer in sorted(operation["responses"].items())
    ]
    yield from _table(("answers", "", "with"), answers)


def _example(content: Mapping[str, Any]) -> str:
    return f"`{json.dumps(content['example'])}`" if "example" in content else ""


def _only(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one kind of content that an answer has, if it has any."""
    return next(iter(content.values()), {})


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
    words = [schema.get("type", "any value")]
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
        options = [one for one in command.params if isinstance(one, click.Option)]
        with click.Context(command) as context:
            lines += _table(
                ("option", "variable", "default", "meaning"), [_row(one, context) for one in options]
            )
    return "\n".join(lines)


def _row(option: click.Option, context: click.Context) -> Row:
    shown: Mapping[str, Any] = option.to_info_dict() | option.get_help_extra(context)
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    default = f"`{shown['default']}`" if isinstance(shown.get("default"), str) else ""
    limits = f" {shown['range']}" if "range" in shown else ""
    choices = getattr(option.type, "choices", ())
    help_text = option.help or (f"one of {', '.join(choices)}" if choices else "")
    return (names, f"`{option.envvar}`" if option.envvar else "", default, help_text + limits)


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
