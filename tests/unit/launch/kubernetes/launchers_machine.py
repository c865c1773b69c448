"""Invariants of launchers under any faults: the checks of the state machine, without its events."""

import contextlib
import io
import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from tests.unit.jobs.specs import job_spec
from tests.unit.launch.kubernetes.fake_cluster import FakeCluster
from tests.unit.launch.kubernetes.fake_launcher import FakeLauncher
from tests.unit.launch.kubernetes.fake_ranks import Ranks
from tests.unit.launch.kubernetes.statuses import job_of
from understudy.errors import DONE, FAILED, Fenced, UnderstudyError
from understudy.jobs.attempts import latest
from understudy.jobs.outcome import Outcome
from understudy.kube.identity import Identity
from understudy.kube.kind import KINDS
from understudy.kube.timeouts import STARTS

KEY = "0" * 64
FAILURES = (
    Outcome(FAILED, "ended with signal SIGKILL", "killed"),
    Outcome(FAILED, "the connection was lost", "lost"),
    Outcome(FAILED, "a mistake", "raised"),
    Outcome(FAILED, "ended with exit code 9 and no word", "unreported"),
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
    "pending: no node fits": lambda cluster: cluster.lacks_nodes(),
    "is the training operator running?": lambda cluster: not cluster.has_operator,
    "does not start yet": lambda cluster: bool(cluster.unmounted),
    "the API server does not answer": lambda cluster: cluster.now < cluster.away_until,
}
"""The reasons that a launcher may give for waiting, and whether each is true."""


class Supervised(RuleBasedStateMachine):
    """One piece of work, a cluster, and the launchers that come and go."""

    @initialize(
        kind=st.sampled_from(sorted(KINDS)),
        queue=st.sampled_from([None, "gpu"]),
        nodes=st.sampled_from([(2, None), (3, 1), (3, 2)]),
        is_mended=st.booleans(),
    )
    def begin(self, kind: str, queue: str | None, nodes: tuple[int, int | None], is_mended: bool) -> None:
        """A cluster with room for the job, and its first launcher; and whether the cluster is mended in the end."""
        self.is_mended = is_mended
        self.folder = Path(tempfile.mkdtemp()) / "work" / "job"
        self.folder.mkdir(parents=True)
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
        """In the end the launcher has ended, or gives the reason why it waits."""
        if not hasattr(self, "cluster"):
            return
        try:
            self.settle()
        finally:
            self.silence.__exit__(None, None, None)
            shutil.rmtree(self.folder.parents[1])

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
        """One launcher's turn, and the consequences of its end."""
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
        """Whether all ranks of the newest attempt came to the end of their training, as the ranks know it."""
        newest = latest(self.folder)
        assert newest, "a success without an attempt"
        world = int((newest / "world").read_text())
        assert self.ranks.done.get(newest.name) == set(range(world)), "a success without a complete result"
        assert (newest / "output").is_dir(), "a success without a result"

    def assert_nothing_is_left(self) -> None:
        """Whether no job of the work goes on."""
        assert not self.cluster.live_jobs(KEY[:40]), "a job goes on that nobody waits for"

    def check(self) -> None:
        """Invariants at every moment."""
        assert not self.cluster.slips, self.cluster.slips
        assert self.ranks.starts <= 2 * STARTS, "restarts without end"

    def mend(self) -> None:
        """Repair the cluster, but not the ranks."""
        for name in self.cluster.nodes_up:
            self.cluster.revive_node(name)
        self.cluster.free_quota, self.cluster.preempted = 10, set()
        self.lack("nothing")

    def lack(self, cause: str) -> None:
        """The job's requirements are missing; everything else is there."""
        self.cluster.waiting = BROKEN.get(cause)
        self.cluster.unmounted = "MountVolume.SetUp failed" if cause == "volume" else ""
        self.cluster.pods_refused = "exceeded quota" if cause == "pods" else ""
        self.cluster.has_operator = cause != "operator"
        self.cluster.quota = 1 if cause == "quota" else 10
        self.cluster.forbidden = {cause} & set(RIGHTS)

    def settle(self) -> None:
        """Without further faults, a launcher ends or gives the true reason why it waits."""
        if self.is_mended:
            self.mend()
        if not self.launchers:
            self.launch("run")
        self.cluster.forbidden.clear()
        for _ in range(PATIENCE // 10):
            self.supervise(10)
            if not self.launchers:
                return
        for launcher in self.launchers:
            last = launcher.messages[-1]
            true = [is_so(self.cluster) for text, is_so in WAITS.items() if text in last]
            assert any(true), f"it waits for ever, and says {last!r}"
