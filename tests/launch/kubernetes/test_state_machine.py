"""Sequences of faults that nobody thought of, on a cluster in memory: whatever comes, five things never happen.

A launcher never reports success without a complete result, never has two jobs of one key, never restarts without end,
never waits for ever without saying why, and leaves no job behind when it fails. UNDERSTUDY_SEQUENCES=5000 draws that
many.
"""

import contextlib
import io
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.jobs.specs import job_spec
from tests.launch.kubernetes.fake_cluster import FakeCluster
from tests.launch.kubernetes.fake_launcher import FakeLauncher
from tests.launch.kubernetes.fake_ranks import Attempt, Ranks, end, uid
from tests.launch.kubernetes.statuses import job_of
from understudy.errors import DONE, FAILED, Fenced, UnderstudyError
from understudy.jobs.outcome import Outcome
from understudy.launch.kubernetes.kind import KINDS
from understudy.launch.kubernetes.patience import STARTS
from understudy.launch.kubernetes.pytorchjob import Identity

SEQUENCES = int(os.environ.get("UNDERSTUDY_SEQUENCES", "0"))
KEY = "0" * 64
FAILURES = (
    Outcome(FAILED, "ended with signal SIGKILL", "killed"),
    Outcome(FAILED, "the connection was lost", "lost"),
    Outcome(FAILED, "a mistake", "raised"),
    Outcome(FAILED, "ended with exit code 9 and no word", "silent"),
)
RUNS = st.sampled_from(["run", "another-run"])
RIGHTS = ("pods", "nodes", "events", "create")
BROKEN = {
    "image": {"reason": "ImagePullBackOff", "message": "not found"},
    "container": {"reason": "CreateContainerError", "message": "no command"},
}
PATIENCE = 1500  # seconds after which a launcher has ended or waits for good
WAITS = {
    "queued: ": lambda cluster: cluster.lacks_quota(),
    "pending: no node takes": lambda cluster: cluster.lacks_nodes(),
    "pending: still no pods": lambda cluster: not cluster.has_operator,
    "ending: all pods have ended": lambda cluster: not cluster.has_operator,
    "does not start yet": lambda cluster: bool(cluster.unmounted),
    "the API server does not answer": lambda cluster: cluster.now < cluster.away_until,
}
"""What a launcher may say that it waits for, and whether that is true."""


class Launchers(RuleBasedStateMachine):
    """One piece of work, a cluster, and the launchers that come and go."""

    @initialize(
        kind=st.sampled_from(sorted(KINDS)),
        queue=st.sampled_from([None, "gpu"]),
        nodes=st.sampled_from([(2, None), (3, 1), (3, 2)]),
    )
    def begin(self, kind: str, queue: str | None, nodes: tuple[int, int | None]) -> None:
        """A cluster with room for the job, and its first launcher."""
        self.folder = Path(tempfile.mkdtemp())
        self.silence = contextlib.redirect_stdout(io.StringIO())
        self.silence.__enter__()
        most, least = nodes if kind == "pytorchjob" else (2, None)
        resources = {"nodes": most, "min_nodes": least, "queue": queue, "hang_timeout": 40, "max_restarts": 2}
        resources |= {"termination_grace_period": 20}
        self.spec = job_spec(self.folder, supervised=True, resources=resources, launcher_timeout=30.0)
        self.ranks = Ranks(self.spec, steps=30, every=4)
        self.cluster = FakeCluster(self.ranks, nodes=most, kind=KINDS[kind])
        self.launchers: list[FakeLauncher] = []
        self.launch("run")

    def teardown(self) -> None:
        """In the end the launcher has ended, or says what it waits for."""
        if not hasattr(self, "cluster"):
            return
        try:
            self.settle()
        finally:
            self.silence.__exit__(None, None, None)
            shutil.rmtree(self.folder)

    # The launchers

    def launch(self, run: str) -> None:
        """A launcher takes the lease."""
        job = job_of(self.spec, identity=Identity(run, "teacher", KEY), kind=self.cluster.kind)
        self.launchers.append(FakeLauncher(self.cluster, job))
        self.ranks.starts = 0

    def supervise(self, seconds: float) -> None:
        """Let launchers work and time pass."""
        until = self.cluster.now + seconds
        while self.cluster.now < until:
            for launcher in list(self.launchers):
                self.tick(launcher)
            self.check()
            self.cluster.pass_seconds(0.5 if self.launchers else until - self.cluster.now)

    def tick(self, launcher: FakeLauncher) -> None:
        """One launcher's turn, and what follows from its end."""
        try:
            outcome = launcher.tick()
        except Fenced:
            assert self.cluster.holder is not launcher, "it gave up a lease that it held"
            self.launchers.remove(launcher)
            return
        except (UnderstudyError, OSError):
            self.launchers.remove(launcher)
            if not launcher.volume_error and not self.cluster.forbidden:
                self.assert_nothing_is_left()
            return
        if outcome is None:
            return
        self.launchers.remove(launcher)
        if outcome.exit_code == DONE:
            self.assert_complete()
        else:
            assert outcome.message, "a failure without a word"
            self.assert_nothing_is_left()

    def assert_complete(self) -> None:
        """Whether all ranks of the newest attempt came to the end of their training, by what the ranks know."""
        newest = max(self.folder.glob("attempt.*"), key=lambda path: int(path.name.split(".")[1]))
        world = int((newest / "world").read_text())
        assert self.ranks.done.get(newest.name) == set(range(world)), "a success without a complete result"
        assert (newest / "output").is_dir(), "a success without a result"

    def assert_nothing_is_left(self) -> None:
        """Whether no job of the work goes on."""
        assert not self.cluster.live_jobs(KEY[:40]), "a job goes on that nobody waits for"

    def check(self) -> None:
        """What holds at every moment."""
        assert not self.cluster.slips, self.cluster.slips
        assert self.ranks.starts <= 2 * STARTS, "restarts without end"

    def settle(self) -> None:
        """Nothing more happens: the launcher ends, or says what it waits for, and that is so."""
        if not self.launchers:
            return
        self.cluster.forbidden.clear()
        for _ in range(PATIENCE // 10):
            self.supervise(10)
            if not self.launchers:
                return
        for launcher in self.launchers:
            last = launcher.said[-1]
            true = [is_so(self.cluster) for words, is_so in WAITS.items() if words in last]
            assert any(true), f"it waits for ever, and says {last!r}"

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

    def running(self, which: int) -> Any:
        """One of the pods that run; if none does, time passes first."""
        if not self.cluster.running():
            self.supervise(10)
        pods = self.cluster.running()
        return pods[which % len(pods)] if pods else None

    def attempt_of(self, pod: Any) -> Attempt | None:
        """The attempt that a pod's rank is part of."""
        found = [attempt for attempt in self.ranks.attempts.values() if uid(pod) in attempt.ranks]
        return found[0] if found else None

    @rule(which=st.integers(0, 2))
    def pod_is_deleted(self, which: int) -> None:
        """A pod has to go."""
        if pod := self.running(which):
            self.cluster.delete_pod_as_somebody(pod["metadata"]["name"])

    @rule(which=st.integers(0, 2), outcome=st.sampled_from(FAILURES), others_are_done=st.booleans())
    def rank_fails(self, which: int, outcome: Outcome, others_are_done: bool) -> None:
        """A rank is killed, loses the others, or raises, perhaps when others have done all of their steps."""
        if others_are_done:
            self.training_goes_on(self.ranks.steps)
        pod = self.running(which)
        attempt = self.attempt_of(pod) if pod else None
        if attempt and others_are_done and attempt.step == self.ranks.steps:
            other = self.running(which + 1)
            if uid(other) in attempt.ranks and other is not pod:
                self.ranks.finish(attempt, other)
        if attempt:
            self.ranks.fail(attempt, pod, outcome)

    @rule(which=st.integers(0, 2), code=st.sampled_from([0, 1, 137, 143]), is_evicted=st.booleans())
    def pod_ends_without_a_word(self, which: int, code: int, is_evicted: bool) -> None:
        """A pod ends, and its rank says nothing: not even when its exit code is that of a success."""
        if pod := self.running(which):
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
        """It does what it is asked for, and the answer does not come."""
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
        self.cluster.preempted = {uid(job) for job in self.cluster.made.values()} if is_preempted else set()
        self.ranks.starts = 0

    @rule(what=st.sampled_from(["image", "container", "volume", "pods", "operator", "quota", *RIGHTS]))
    def something_is_broken(self, what: str) -> None:
        """What a job needs is not there."""
        self.cluster.waiting = BROKEN.get(what)
        self.cluster.unmounted = "MountVolume.SetUp failed" if what == "volume" else ""
        self.cluster.pods_refused = "exceeded quota" if what == "pods" else ""
        self.cluster.has_operator = what != "operator"
        self.cluster.quota = 1 if what == "quota" else 10
        self.cluster.forbidden = {what} & set(RIGHTS)
        self.ranks.starts = 0
        self.supervise(10)

    @rule()
    def everything_is_mended(self) -> None:
        """The cluster is as it was."""
        for name in self.cluster.nodes_up:
            self.cluster.revive_node(name)
        self.cluster.free_quota, self.cluster.preempted = 10, set()
        self.ranks.breaks_at = None
        self.something_is_broken("nothing")

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
    max_examples=SEQUENCES or 60,
    stateful_step_count=40,
    deadline=None,
    derandomize=not SEQUENCES,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
TestLaunchers = Launchers.TestCase
