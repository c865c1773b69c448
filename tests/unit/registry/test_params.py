from understudy.registry.params import flat


def test_parameters_are_flat_and_without_credentials() -> None:
    values = {"a": {"b": 1, "c": {}}, "d": [1, 2], "e": None, "f": "s3://me:secret@host/x", "g": "text"}
    assert flat(values) == {"a.b": "1", "a.c": "{}", "d": "[1, 2]", "e": "null", "f": "s3://host/x", "g": "text"}
