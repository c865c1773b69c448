from types import SimpleNamespace

import pytest

from understudy.errors import InputError
from understudy.parallel.heads import check_heads

CONFIG = SimpleNamespace(num_attention_heads=8, num_key_value_heads=2)


@pytest.mark.parametrize(("config", "parts"), [(CONFIG, 1), (CONFIG, 2), (None, 3), (SimpleNamespace(), 3)])
def test_heads_that_divide_are_taken_and_models_without_any(config: object, parts: int) -> None:
    check_heads(config, parts, "tp", "student.train")


def test_heads_that_do_not_divide_are_named_with_the_place_and_the_degrees() -> None:
    with pytest.raises(InputError, match=r"^student\.train\.strategy: num_key_value_heads is 2 .* 4 processes \(tp\)"):
        check_heads(CONFIG, 4, "tp", "student.train")
