"""Tables of cached logits, and their JSON."""

import json
from typing import Any

import numpy as np
import pytest

from tests.unit.teachers.cache.distributions import skewed
from understudy.errors import UnderstudyError
from understudy.store.files import canonical
from understudy.teachers.cache.codec import encode
from understudy.teachers.cache.sparse import sampled, top_k
from understudy.teachers.cache.tables import Tables


@pytest.fixture(scope="module")
def stored() -> str:
    return json.dumps(Tables.fit([top_k(skewed(40, 30), 5)]).to_json())


@pytest.mark.parametrize("draws", [0, 12])
def test_tables_that_were_stored_give_the_same_bytes(draws: int) -> None:
    log_probs = skewed(40, 300)
    sparse = sampled(log_probs, draws, np.arange(40)) if draws else top_k(log_probs, 9)
    tables = Tables.fit([sparse], draws=draws)
    again = Tables.from_json(json.loads(canonical(tables.to_json())))
    assert (again.step, again.draws, again.most, again.vocabulary) == (tables.step, draws, tables.most, 300)
    assert encode(sparse, again)[0] == encode(sparse, tables)[0]


def test_ranks_are_in_order_of_frequency() -> None:
    sparse = top_k(skewed(40, 30), 5)
    counts = np.bincount(sparse.ids.numpy().ravel(), minlength=30)
    order = Tables.fit([sparse]).order
    assert (np.diff(counts[order]) <= 0).all()
    assert sorted(order.tolist()) == list(range(30))


CHANGES: dict[str, Any] = {
    "no object": lambda value: [],
    "a key more": lambda value: value | {"more": 1},
    "a key less": lambda value: {key: value[key] for key in ("step", "draws")},
    "no step": lambda value: value | {"step": 0.0},
    "a step of NaN": lambda value: value | {"step": float("nan")},
    "negative draws": lambda value: value | {"draws": -1},
    "too many entries": lambda value: value | {"most": 2**40},
    "a class twice": lambda value: value | {"order": [0, *value["order"][:-1]]},
    "a class too large": lambda value: value | {"order": [*value["order"], 2**30]},
    "a topic with a class twice": lambda value: value | {"heads": [[1, *head[1:-1], 1] for head in value["heads"]]},
    "a topic with a class too large": lambda value: value | {"heads": [[30, *head[1:]] for head in value["heads"]]},
    "a topic too short": lambda value: value | {"heads": [head[:-1] for head in value["heads"]]},
    "an empty topic": lambda value: value | {"heads": [[]]},
    "no topics": lambda value: value | {"heads": []},
    "no classes": lambda value: value | {"order": []},
    "text for numbers": lambda value: value | {"order": [str(key) for key in value["order"]]},
    "a model less": lambda value: value | {"frequencies": value["frequencies"][:-1]},
    "a symbol more": lambda value: value | {"frequencies": [[*row, 0] for row in value["frequencies"]]},
    "a wrong sum": lambda value: value | {"frequencies": [[row[0] + 1, *row[1:]] for row in value["frequencies"]]},
    "a negative frequency": lambda value: (
        value | {"frequencies": [[-1, row[1] + row[0] + 1, *row[2:]] for row in value["frequencies"]]}
    ),
    "a symbol that cannot be": lambda value: (
        value | {"frequencies": [[row[0] - 1, *row[1:-1], row[-1] + 1] for row in value["frequencies"]]}
    ),
    "rows for more entries": lambda value: value | {"most": 1000},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_tables_that_nothing_wrote_are_refused(stored: str, change: Any) -> None:
    with pytest.raises(UnderstudyError, match="tables of cached logits"):
        Tables.from_json(change(json.loads(stored)))


def test_a_vocabulary_that_is_too_large_is_refused() -> None:
    with pytest.raises(UnderstudyError, match="at most 1,047,552 classes"):
        Tables.fit([top_k(skewed(1, 30), 5)._replace(vocabulary=2**20 + 1)])
