"""Sequences of faults at random, on a cluster in memory: five invariants hold under all of them.

A launcher never reports success without a complete result, never has two jobs of one key, never restarts without end,
never waits for ever without saying why, and leaves no job behind when it fails (launchers_machine.py checks it).
tests/full/test_state_machine_sequences.py draws many more.
"""

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.unit.launch.kubernetes.fake_ranks import Attempt, end, uid
from tests.unit.launch.kubernetes.launchers_machine import FAILURES, RIGHTS, RUNS, Supervised
from understudy.jobs.outcome import Outcome


class Launchers(Supervised):
    """Random faults and events."""

    # Time

    @rule(seconds=st.sampled_from([1, 3, 10, 40, 100]))
    def time_passes(self, seconds: float) -> None:
        """Launchers work."""
        self.supervise(seconds)

    @rule(step=st.integers(1, 30))
    def training_goes_on(self, step: int) -> None:
        """Launchers work until the ranks are there, if they come so far."""
        until = self.cluster.now + 60
        while self.launchers and self.cluster.now < until and self.step() < step:
            self.supervise(1)

    def step(self) -> int:
        """How far the ranks are that run."""
        return max((attempt.step for attempt in self.ranks.attempts.values()), default=0)

    @rule(seconds=st.sampled_from([5, 35, 100]))
    def launchers_stand_still(self, seconds: float) -> None:
        """They are frozen, and the cluster goes on."""
        self.cluster.pass_seconds(seconds)

    @rule(seconds=st.sampled_from([2.0, 40.0, 3600.0]))
    def everything_stands_still(self, seconds: float) -> None:
        """The clock jumps."""
        self.cluster.now += seconds

    @rule(seconds=st.sampled_from([-86400.0, 0.0, 3600.0]))
    def clocks_differ(self, seconds: float) -> None:
        """The API server's clock is wrong."""
        self.cluster.skew = seconds

    # Launchers come and go

    @rule(run=RUNS)
    def launcher_is_replaced(self, run: str) -> None:
        """A launcher dies, and the same run's or another run's comes instead."""
        self.launchers.clear()
        self.launch(run)

    @precondition(lambda self: self.launchers)
    @rule(run=RUNS)
    def lease_is_taken_while_a_launcher_waits_for_an_answer(self, run: str) -> None:
        """It was frozen, and another one has its work when it goes on."""
        self.cluster.after_answer = lambda: self.launch(run)
        self.supervise(3)

    @precondition(lambda self: self.launchers)
    @rule(number=st.sampled_from([5, 28]), seconds=st.sampled_from([3, 100]))
    def volume_fails(self, number: int, seconds: float) -> None:
        """The volume is away for a while, or full."""
        launcher = self.launchers[-1]
        launcher.volume_error = OSError(number, os.strerror(number))
        self.supervise(seconds)
        launcher.volume_error = None

    # Ranks and pods

    def running(self, index: int) -> Any:
        """One of the pods that run; if none does, time passes first."""
        if not self.cluster.running():
            self.supervise(10)
        pods = self.cluster.running()
        return pods[index % len(pods)] if pods else None

    def attempt_of(self, pod: Any) -> Attempt | None:
        """The attempt that a pod's rank is part of."""
        attempts = [attempt for attempt in self.ranks.attempts.values() if uid(pod) in attempt.ranks]
        return attempts[0] if attempts else None

    @rule(index=st.integers(0, 2))
    def pod_is_deleted(self, index: int) -> None:
        """A pod has to go."""
        if pod := self.running(index):
            self.cluster.delete_pod_as_somebody(pod["metadata"]["name"])

    @rule(index=st.integers(0, 2), outcome=st.sampled_from(FAILURES), others_are_done=st.booleans())
    def rank_fails(self, index: int, outcome: Outcome, others_are_done: bool) -> None:
        """A rank is killed, loses the others, or raises, perhaps when others have done all of their steps."""
        if others_are_done:
            self.training_goes_on(self.ranks.steps)
        pod = self.running(index)
        attempt = self.attempt_of(pod) if pod else None
        if attempt and others_are_done and attempt.step == self.ranks.steps:
            next_pod = self.running(index + 1)
            if uid(next_pod) in attempt.ranks and next_pod is not pod:
                self.ranks.finish(attempt, next_pod)
        if attempt:
            self.ranks.fail(attempt, pod, outcome)

    @rule(index=st.integers(0, 2), code=st.sampled_from([0, 1, 137, 143]), is_evicted=st.booleans())
    def pod_ends_without_a_word(self, index: int, code: int, is_evicted: bool) -> None:
        """A pod ends, and its rank says nothing: not even when its exit code is that of a success."""
        if pod := self.running(index):
            if attempt := self.attempt_of(pod):
                attempt.is_broken = True
            end(pod, code, "OOMKilled" if code == 137 else "")
            pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}] if is_evicted else []

    @rule()
    def ranks_hang(self) -> None:
        """No rank moves any more."""
        for attempt in self.ranks.attempts.values():
            attempt.hangs = True

    @rule(step=st.sampled_from([0, 3, 30, None]), outcome=st.sampled_from(FAILURES))
    def every_attempt_ends_at(self, step: int | None, outcome: Outcome) -> None:
        """Something is wrong that does not mend by itself."""
        self.ranks.breaks_at, self.ranks.breaks_by = step, outcome

    # The cluster

    @rule()
    def api_server_loses_an_answer(self) -> None:
        """The server carries out the request, and its answer is lost."""
        self.cluster.loses_answers = True

    @rule(seconds=st.sampled_from([1, 30, 120]))
    def api_server_is_away(self, seconds: float) -> None:
        """It does not answer."""
        self.cluster.away_until = self.cluster.now + seconds
        self.ranks.starts = 0

    @rule(node=st.integers(0, 2))
    def node_dies(self, node: int) -> None:
        """A node does not answer any more."""
        name = sorted(self.cluster.nodes_up)[node % len(self.cluster.nodes_up)]
        if self.cluster.nodes_up[name]:
            self.cluster.kill_node(name)
            self.ranks.starts = 0

    @rule(free=st.integers(0, 3), is_preempted=st.booleans())
    def quota_is_taken(self, free: int, is_preempted: bool) -> None:
        """Others need room in the queue, and the job's too if theirs is the higher priority."""
        self.cluster.free_quota = free
        self.cluster.preempted = {uid(job) for job in self.cluster.created.values()} if is_preempted else set()
        self.ranks.starts = 0

    @rule(cause=st.sampled_from(["image", "container", "volume", "pods", "operator", "quota", *RIGHTS]))
    def something_is_broken(self, cause: str) -> None:
        """The job's requirements are missing."""
        self.lack(cause)
        self.ranks.starts = 0
        self.supervise(10)

    @rule()
    def everything_is_mended(self) -> None:
        """Ranks end as they should again, too."""
        self.mend()
        self.ranks.breaks_at = None
        self.ranks.starts = 0
        self.supervise(10)

    @rule(is_gone=st.booleans())
    def somebody_deletes_the_job(self, is_gone: bool) -> None:
        """Or the run that it belongs to."""
        self.cluster.owner = None if is_gone else {"metadata": {"uid": "run"}, "spec": {}}
        self.cluster.delete_jobs_as_somebody()

    @rule()
    def run_is_stopped(self) -> None:
        """Ranks are asked to leave."""
        self.spec.stop_file.touch()


Launchers.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
TestLaunchers = Launchers.TestCase
