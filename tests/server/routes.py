"""Print every route of the app that the server runs, a line each: METHOD PATH."""

from collections.abc import Iterator
from typing import Any

from mlflow.server import app as flask_app
from starlette.routing import Mount

from understudy_server import app


def native(routes: list[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The routes that FastAPI answers; everything else goes to Flask."""
    for route in routes:
        if hasattr(route, "original_router"):
            yield from native(route.original_router.routes, prefix + route.include_context.prefix)
        elif isinstance(route, Mount):
            assert (prefix, route.path) == ("", ""), "the Flask app"
        else:
            yield from ((method, prefix + route.path) for method in route.methods)


def flask() -> Iterator[tuple[str, str]]:
    for rule in flask_app.url_map.iter_rules():
        yield from ((method, rule.rule) for method in rule.methods)


if __name__ == "__main__":
    app.create_accounts()
    created = app.create_app()
    for method, path in sorted({*native(created.routes), *flask()}):
        print(method, path)
