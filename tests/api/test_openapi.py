"""GET /openapi.json says what is served, and is a document as OpenAPI 3.1 has it."""

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from flask.testing import FlaskClient

from reservation_expiry.api.http import create_app
from reservation_expiry.api.openapi import document

METHODS = {"GET", "PUT", "POST", "DELETE"}
ANY_METHOD = {"/": {"GET"}}  # routes of the contract take any, and refuse all but these
ANY_METHOD |= {"/reservations/{name}": {"GET", "POST"}}
ANY_METHOD |= {"/reservations/{name}/replay-alarm": {"POST"}}

NOTHING = SimpleNamespace(all=None)  # is asked


def served() -> set[tuple[str, str]]:
    on_paper: Any = SimpleNamespace(mapper=None, queries=SimpleNamespace(reader=NOTHING))
    app = create_app(on_paper, schedules=on_paper)
    found = set()
    for rule in app.url_map.iter_rules():
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
        if path.startswith("/dashboard"):
            continue  # for people
        methods = ANY_METHOD[path] if rule.methods is None else rule.methods & METHODS
        found |= {(path, method) for method in methods}
    return found


def test_every_route_is_in_the_document_and_nothing_else() -> None:
    paths = json.loads(document())["paths"]
    told = {(path, method.upper()) for path, methods in paths.items() for method in methods}
    assert told == served()


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_reference_leads_somewhere() -> None:
    found = json.loads(document())
    for reference in references(found):
        place = found
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]
        assert place


def test_the_example_is_taken_by_the_route_that_it_is_of(client: FlaskClient) -> None:
    found = client.get("/openapi.json").json
    client.put("/items/hall:floor", json={"capacity": 5})
    body = found["paths"]["/holds/{name}"]["put"]["requestBody"]["content"]["application/json"]
    held = client.put("/holds/cart-4711", json=body["example"])
    assert held.status_code == 201
    assert set(held.json) == set(found["components"]["schemas"]["Hold"]["properties"])
