import json
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from understudy.errors import UnderstudyError
from understudy.launch.kube import Away, Kube, Refused, _in_words


def said(status: int, message: str | None) -> UnderstudyError:
    error = ApiException(status=status, reason="Reason")
    error.body = json.dumps({"message": message}) if message else "not JSON"
    return _in_words(error)


@pytest.mark.parametrize(
    ("status", "message", "kind", "words"),
    [
        (
            403,
            'pods is forbidden: User "u" cannot list resource "pods"',
            Refused,
            "a right is missing: pods is forbidden",
        ),
        (422, "spec.x: Forbidden", Refused, "the cluster refuses it: spec.x"),
        (400, 'admission webhook "w" denied the request: no', Refused, "denied the request: no"),
        (500, 'failed calling webhook "w": connection refused', Away, "cannot answer now"),
        (503, None, Away, "cannot answer now (Reason)"),
        (401, "Unauthorized", Refused, "token"),
    ],
)
def test_what_may_mend_by_itself_is_told_from_a_refusal(
    status: int, message: str | None, kind: type[UnderstudyError], words: str
) -> None:
    error = said(status, message)
    assert isinstance(error, kind)
    assert words in str(error)


@pytest.mark.parametrize(
    ("answer", "there"), [({"metadata": {}}, True), (None, False), (Refused("a right is missing"), True)]
)
def test_a_namespace_is_there_unless_the_cluster_says_that_it_is_not(answer: Any, there: bool) -> None:
    class Answers(Kube):
        def __init__(self) -> None:
            self.namespace = "here"
            self.core = SimpleNamespace(read_namespace=None)

        def ask(self, question: object, *arguments: object, **options: object) -> Any:
            assert arguments == ("here",)
            if isinstance(answer, Exception):
                raise answer
            return answer

    assert Answers().has_namespace() == there
