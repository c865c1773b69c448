"""Search isolation: queries select only readable rows, so neither results nor page tokens reveal the others.

MLflow searches all rows and then removes those that an account may not read. The token of the next page remained, or
counted them: with enough queries an account read names and tags of another team letter by letter. Here the database
query selects readable rows only; MLflow's filter still follows, and has nothing to remove.
"""

import re
from collections.abc import Callable
from functools import partial, partialmethod
from typing import Any, NamedTuple

from flask import g, has_request_context
from mlflow.entities.model_registry import RegisteredModel, RegisteredModelTag
from mlflow.prompt.constants import IS_PROMPT_TAG_KEY
from mlflow.server import auth
from mlflow.server.auth.entities import User
from mlflow.store.model_registry import sqlalchemy_store as registry_store
from mlflow.store.model_registry.dbmodels.models import SqlModelVersion, SqlRegisteredModel
from mlflow.store.tracking import sqlalchemy_store as tracking_store
from mlflow.store.tracking.dbmodels.models import SqlExperiment, SqlLoggedModel
from mlflow.utils.workspace_utils import DEFAULT_WORKSPACE_NAME

from understudy_server.sign_in import sender

Predicate = Callable[[str], bool]
UNNAMED = "\0"  # in no permission, so it stands for everything that no permission names
LOGGED_MODELS = "_apply_filter_string_datasets_search_logged_models"
NUMBER = re.compile("0|[1-9][0-9]{0,9}")
LARGEST = 2**31 - 1  # the largest experiment number that the database accepts


class Readable(NamedTuple):
    """The resources that an account may read: only these, or all but these."""

    ids: tuple[str, ...] | tuple[int, ...]
    all_but: bool

    def among(self, column: Any) -> Any:
        """The condition on a database column."""
        return column.not_in(self.ids) if self.all_but else column.in_(self.ids)


Selection = Callable[[User], Readable]
"""Computes an account's readable resources of one kind."""


def restrict_searches() -> None:
    """Restrict every search that MLflow filters afterwards."""
    registry, tracking = registry_store.SqlAlchemyStore, tracking_store.SqlAlchemyStore
    auth._role_based_read_predicate = partial(_once, auth._role_based_read_predicate)
    for store, search, selection in (
        (registry, "search_registered_models", _models),
        (registry, "search_model_versions", _versions),
        (tracking, "search_logged_models", _logged_models),
        (tracking, "search_experiments", _experiments),
    ):
        setattr(store, search, partialmethod(_prepared, getattr(store, search), selection))
    for store, query, column, selection in (
        (registry, "_get_search_registered_model_filter_query", SqlRegisteredModel.name, _models),
        (registry, "_get_search_model_versions_filter_clauses", SqlModelVersion.name, _versions),
        (tracking, LOGGED_MODELS, SqlLoggedModel.experiment_id, _logged_models),
    ):
        setattr(store, query, partialmethod(_narrowed, getattr(store, query), column, selection))
    tracking_store._get_search_experiments_filter_clauses = partial(
        _experiments_narrowed, tracking_store._get_search_experiments_filter_clauses
    )


def _once(predicate: Callable[..., Predicate], *arguments: Any, **options: Any) -> Predicate:
    """MLflow's read predicate, computed once per request, since MLflow's filter requires it again."""
    if not has_request_context():
        return predicate(*arguments, **options)
    predicates: dict[str, Predicate] = g.setdefault("understudy_reads", {})
    key = repr((arguments, options))
    if key not in predicates:
        predicates[key] = predicate(*arguments, **options)
    return predicates[key]


def _prepared(store: Any, search: Callable[..., Any], selection: Selection, *arguments: Any, **options: Any) -> Any:
    """Compute the readable resources before the search takes a connection, so no thread waits with one for another."""
    _readable_for(selection)
    return search(store, *arguments, **options)


def _narrowed(store: Any, query: Callable[..., Any], column: Any, selection: Selection, *arguments: Any) -> Any:
    readable = _readable_for(selection)
    return query(store, *arguments) if readable is None else query(store, *arguments).filter(readable.among(column))


def _experiments_narrowed(clauses: Callable[..., Any], *arguments: Any) -> Any:
    """MLflow's conditions on an experiment's columns, narrowed, and those on its tags."""
    conditions, tag_conditions = clauses(*arguments)
    readable = _readable_for(_experiments)
    return (
        conditions if readable is None else [*conditions, readable.among(SqlExperiment.experiment_id)]
    ), tag_conditions


def _readable_for(selection: Selection) -> Readable | None:
    """The account's readable resources; None for an admin, who reads everything, and for the server itself."""
    if not has_request_context():
        return None
    cached: dict[Selection, Readable | None] = g.setdefault("understudy_readable", {})
    if selection not in cached:
        user = auth.store.get_user(sender().name)
        cached[selection] = None if user.is_admin else selection(user)
    return cached[selection]


def _models(user: User) -> Readable:
    return _of_models(user, auth._rm_or_prompt_read_predicate(user.username))


def _versions(user: User) -> Readable:
    return _of_models(user, auth._rm_or_prompt_version_read_predicate(user.username))


def _of_models(user: User, reads: Callable[[Any], bool]) -> Readable:
    """Include MLflow's permissions for prompts, which are models in the same table."""
    prompt = [RegisteredModelTag(IS_PROMPT_TAG_KEY, "true")]
    return _readable(
        user,
        ("registered_model", "prompt"),
        lambda model: reads(RegisteredModel(model)) or reads(RegisteredModel(model, tags=prompt)),
    )


def _experiments(user: User) -> Readable:
    return _numbered(user, auth._role_based_read_predicate(user.username, "experiment"))


def _logged_models(user: User) -> Readable:
    """As MLflow filters them: by their experiment, and by the permission for all logged models, which may be denied."""
    requirements = [auth.Requirement("logged_model", "*", auth.ACTION_NOT_DENIED)]
    reads = auth._role_based_read_predicate(user.username, "experiment", also_require=requirements)
    return _numbered(user, reads)


def _numbered(user: User, reads: Predicate) -> Readable:
    """Experiments by their number in the database: a permission without a valid number permits nothing."""
    ids, all_but = _readable(user, ("experiment",), reads)
    numbers = [int(id_) for id_ in ids if NUMBER.fullmatch(str(id_))]
    return Readable(tuple(number for number in numbers if number <= LARGEST), all_but)


def _readable(user: User, kinds: tuple[str, ...], reads: Predicate) -> Readable:
    """An account's readable resources, by MLflow's predicate for each resource that one of its permissions names."""
    grants = auth.store.list_grants(user.id, DEFAULT_WORKSPACE_NAME, kinds)
    named = {grant.resource_pattern for grant in grants if grant.resource_type in kinds}
    all_but = reads(UNNAMED)
    return Readable(tuple(sorted(name for name in named if reads(name) is not all_but)), all_but)
