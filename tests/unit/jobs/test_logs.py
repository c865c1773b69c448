"""Following ranks' logs."""

from dataclasses import replace

import pytest

from understudy.jobs.logs import RankLogs
from understudy.jobs.specification import JobSpec


@pytest.fixture
def spec(job: JobSpec) -> JobSpec:
    return replace(job, supervised=True)


def test_lines_are_said_once_whoever_follows_and_whole(spec: JobSpec) -> None:
    spec.rank_logs.mkdir(parents=True)
    followed: list[str] = []
    with spec.log(1).open("w") as log:
        log.write("one\ntw")
        log.flush()
        RankLogs(spec, followed.append).follow({1: "gpu-0"})
        log.write("o\nthree\n")
        log.flush()
        RankLogs(spec, followed.append).follow({1: "gpu-0"})
        log.write("no end")
        log.flush()
        RankLogs(spec, followed.append).follow({1: "gpu-0"})
    assert followed == ["[gpu-0 rank 1] one", "[gpu-0 rank 1] two", "[gpu-0 rank 1] three"]
    RankLogs(spec, followed.append).follow({1: "gpu-0"}, end=True)
    assert followed[3:] == ["[gpu-0 rank 1] no end"]
    assert RankLogs(spec, followed.append).tail(1) == ["one", "two", "three", "no end"]
    assert RankLogs(spec, followed.append).tail(0) == []


def test_a_follower_that_has_to_go_in_the_middle_leaves_the_rest_to_the_next(spec: JobSpec) -> None:
    spec.rank_logs.mkdir(parents=True)
    lines = [f"line {number} \xe9" for number in range(100)]
    spec.log(1).write_text("\n".join(lines) + "\n")
    followed: list[str] = []

    def leaves(line: str) -> None:
        if len(followed) == 37:
            raise SystemExit(143)
        followed.append(line)

    with pytest.raises(SystemExit):
        RankLogs(spec, leaves).follow({1: "gpu-0"})
    RankLogs(spec, followed.append).follow({1: "gpu-0"})
    assert followed == [f"[gpu-0 rank 1] {line}" for line in lines]
