"""Supervising a job in a cluster: submit it or find it again, tell what becomes of it, and give the verdict.

Any launcher that holds the step's lease can take over from any other at any time: what is known of a job is in the
cluster and in the job's folder, and nothing only in here. The verdict is not the operator's alone: a job went well when
its result is complete and every rank of its last attempt said so.
"""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from understudy.errors import FAILED, STOPPED, Fenced, InputError, UnderstudyError
from understudy.jobs import attempts
from understudy.jobs.heartbeat import beats
from understudy.jobs.logs import TAIL, Logs, Words
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.launch.kubernetes import elastic
from understudy.launch.kubernetes.api import Away, Kube, Object, Refused
from understudy.launch.kubernetes.diagnosis import HOPE, Trouble, is_scaling
from understudy.launch.kubernetes.identity import KEY, Identity
from understudy.launch.kubernetes.kind import PYTORCHJOB
from understudy.launch.kubernetes.pytorchjob import render
from understudy.launch.kubernetes.settings import Cluster
from understudy.launch.kubernetes.status import Sight, death, look, was_disrupted
from understudy.launch.kubernetes.task_config import NOTHING, TaskConfig
from understudy.launch.kubernetes.waiting import Leaving, Waiting
from understudy.recipe import Resources
from understudy.runs.orphans import why_over

TICK = 0.5  # seconds between two looks at the job's files
ASK = 1.5  # seconds between two questions to the API
AGAIN = 10.0  # seconds from one number of nodes to the next smaller one
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # a volume that does not mend by itself
SETTLE = 10.0  # seconds that the last words of a finished job may take to be seen on the volume


@dataclass(frozen=True)
class Job:
    """All that a launcher needs to know of its job."""

    spec: JobSpec
    identity: Identity
    resources: Resources
    cluster: Cluster
    since: float
    """When the run began (Unix seconds): how ranks failed in earlier runs does not count for this one."""
    owner: Object | None
    """What outlives the launcher's pod; the job goes when it goes."""
    task: TaskConfig = NOTHING
    """What was set on the task that launches it."""


def run(job: Job, kube: Kube, watch: Callable[[], None], tell: Callable[[str], None]) -> Outcome:
    """See a job to its end.

    Args:
        job: the job; its specification is written first.
        kube: the cluster.
        watch: called several times a second; an exception from it leaves the job to whoever comes next.
        tell: called with where the job stands, whenever that changes.

    Returns:
        How the job ended.
    """
    folder = Path(job.spec.folder)
    folder.mkdir(exist_ok=True)
    Path(job.spec.logs).mkdir(parents=True, exist_ok=True)
    job.spec.write()
    return _Supervision(job, kube, watch, tell).run()


class _Supervision:
    def __init__(self, job: Job, kube: Kube, watch: Callable[[], None], tell: Callable[[str], None]) -> None:
        self._job, self._kube, self._watch, self._tell = job, kube, watch, tell
        self._spec, self._folder = job.spec, Path(job.spec.folder)
        self._manifest = render(job.spec, job.identity, job.resources, job.cluster, job.owner, job.task)
        self._name = ""
        self._words = Words(Path(job.spec.logs))
        self._logs = Logs(job.spec, self._words.say)
        self._said = ""
        self._waiting, self._leaving = Waiting(), Leaving()
        self._failing_since: dict[str, float] = {}
        self._trouble = Trouble(job.spec, job.resources, job.since, kube, self._say)

    def run(self) -> Outcome:
        """Look, tell and act until there is a verdict."""
        asked = -ASK
        try:
            while True:
                with self._patiently("files"):
                    self._watch()
                    self._follow()
                if time.monotonic() - asked >= ASK:
                    asked = time.monotonic()
                    with self._patiently("cluster"):
                        if outcome := self._step():
                            self._follow(end=True)
                            return outcome
                time.sleep(TICK)
        except Fenced:
            raise  # another launcher has the job now
        except (UnderstudyError, OSError):  # this step has failed, of a full volume say: nobody would wait for its job
            self._give_up()
            raise

    def _give_up(self) -> None:
        if self._name:
            with suppress(UnderstudyError, OSError):  # of the two errors the first is the one to tell
                self._delete(self._name)

    def _delete(self, job: str) -> None:
        self._watch()  # a launcher that was frozen may have lost the job to another one
        self._kube.delete_job(PYTORCHJOB, job)

    @contextmanager
    def _patiently(self, what: str) -> Iterator[None]:
        """An API server that is away comes back; the job does not need it, and its files tell how it is."""
        try:
            yield
            self._failing_since.pop(what, None)
        except Away as error:
            self._say(f"{error}; the job goes on, and so does this")
        except (Refused, OSError) as error:  # a server that has just started; a volume that is away for a moment
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            if time.monotonic() - self._failing_since.setdefault(what, time.monotonic()) > HOPE:
                raise
            self._say(str(error))

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._words.say(f"{self._job.identity.step}: {text}")
            self._tell(text)

    def _follow(self, *, end: bool = False) -> None:
        self._logs.follow({rank: beat.node for rank, beat in beats(self._folder, self._ranks).items()}, end)

    @property
    def _ranks(self) -> range:
        return range(self._spec.world_size)

    # One look

    def _step(self) -> Outcome | None:
        if not self._name:
            return self._find_or_submit()
        found = self._kube.job(PYTORCHJOB, self._name)
        pods = self._kube.pods(PYTORCHJOB.pods_of(self._name)) if found else []
        pods = elastic.enough(self._spec, pods)
        suspended = found and PYTORCHJOB.is_suspended(found)
        workload = self._kube.workload_of(found) if found and suspended else None
        sight = look(found, pods, workload, self._leaving.overdue(pods))
        self._waiting.look(sight)
        sight = self._trouble.explained(sight, pods, self._waiting.seconds)
        if sight.stage in ("succeeded", "failed", "gone"):
            return self._ended(sight, pods)
        if sight.stage != "running" or not self._has_stepped():
            self._say(f"{sight.stage}: {sight.detail}")
        if sight.dead:
            self._give_up_node(sight, pods)
            return None
        assert found is not None
        if cause := self._parted():
            return self._judged(cause, pods)
        if self._shrink(found, sight, pods):
            return None
        outcome = self._trouble.found(found, sight, pods, self._waiting.seconds)
        return self._failed(outcome, pods) if outcome else None

    def _has_stepped(self) -> bool:
        return any(beat.step >= 0 for beat in beats(self._folder, self._ranks).values())

    def _find_or_submit(self) -> Outcome | None:
        """Go on watching the job that does this work, whichever launcher submitted it; submit one if there is none."""
        there = self._kube.jobs(PYTORCHJOB, f"{KEY}={self._job.identity.labels[KEY]}")
        going = [job for job in there if self._is_worth_watching(job)]
        for job in there:
            if job not in going[-1:]:
                self._delete(job["metadata"]["name"])
        if going:
            self._name = going[-1]["metadata"]["name"]
            self._say(f"watching the job {self._name}, which was submitted before")
            return None
        if there:
            return None  # until the failed one has gone
        self._watch()  # to submit needs the lease as much as to delete does
        self._spec.stop_file.unlink(missing_ok=True)
        attempts.keep_failures(self._spec)
        try:
            self._kube.create_job(PYTORCHJOB, self._manifest)
        except Refused as error:
            return Outcome(FAILED, f"the job {self._job.identity.name} was not accepted: {error}")
        self._name = self._job.identity.name
        self._say(f"submitted as {self._name}")
        return None

    def _is_worth_watching(self, job: Object) -> bool:
        """Whether a job that is there still does this work, or has done it; its result may have been lost since."""
        stage = look(job, []).stage
        return stage not in ("gone", "failed") and (stage != "succeeded" or attempts.is_complete(self._spec))

    # What can be done

    def _give_up_node(self, sight: Sight, pods: list[Object]) -> None:
        """Forget the pods of a dead node, and have the others start again with those that come instead."""
        self._watch()
        for pod in pods:
            name = pod["metadata"]["name"]
            if name in sight.dead:
                self._kube.delete_pod(name, grace=0)
            elif "deletionTimestamp" not in pod["metadata"]:
                self._kube.delete_pod(name)

    def _shrink(self, found: Object, sight: Sight, pods: list[Object]) -> bool:
        """Do with fewer nodes, where the recipe allows it and the cluster has had its time to give all of them."""
        nodes = elastic.smaller(self._spec, found, sight, pods)
        if nodes is None or self._waiting.seconds < HOPE or is_scaling(self._kube, pods):
            return False
        self._watch()
        self._kube.change_job(PYTORCHJOB, self._name, elastic.resized(found, nodes))
        self._say(f"asking for {nodes} of {self._spec.nodes} nodes: {sight.detail}")
        self._waiting.shorten(HOPE - (AGAIN if nodes > self._spec.least else HOPE))
        return True

    # The end

    def _ended(self, sight: Sight, pods: list[Object]) -> Outcome | None:
        for _ in range(int(SETTLE / TICK)):
            if attempts.is_complete(self._spec):
                self._trouble.tell_failures()  # of an attempt that began and ended between two looks
                return Outcome(0)
            if sight.stage != "succeeded":
                break
            time.sleep(TICK)
        if sight.stage == "gone" and not self._is_ours_to_resubmit():
            return self._deleted()
        failed = [outcome for outcome in attempts.outcomes(self._spec) if outcome.exit_code]
        if failed:
            return self._judged(Outcome.cause(failed), pods)
        if sight.stage == "succeeded":
            self._again("not every rank has said how it ended")
            return None
        return self._ended_without_a_word(sight, pods)

    def _deleted(self) -> Outcome:
        """The verdict on a job that went: with its run, as far as this account may know, or without."""
        with suppress(Refused):
            if self._job.owner and (why := why_over(self._kube, self._job.owner)):
                return Outcome(STOPPED, why)
        return Outcome(FAILED, f"the job {self._name} was deleted by somebody else; run again to go on")

    def _parted(self) -> Outcome | None:
        """What went wrong with a rank when others were done already: those wait for it, and it finds nobody to meet."""
        if attempts.is_complete(self._spec):
            return None
        said = attempts.outcomes(self._spec)
        failed = [outcome for outcome in said if outcome.exit_code]
        return Outcome.cause(failed) if failed and len(failed) < len(said) else None

    def _judged(self, cause: Outcome, pods: list[Object]) -> Outcome | None:
        """The verdict that follows from what ended an attempt; None when there is to be another."""
        if cause.exit_code == STOPPED and self._spec.stop_file.exists():
            self._delete(self._name)
            return cause
        if cause.exit_code == STOPPED or cause.kind in ("killed", "lost"):
            self._again(cause.message)
            return None
        return self._failed(cause, pods)

    def _ended_without_a_word(self, sight: Sight, pods: list[Object]) -> Outcome | None:
        """Nobody's fault when the pods had to go, or went; otherwise what they printed is all that is known."""
        if (left := self._spec.abandoned_file.exists()) and (outcome := self._trouble.unwatched()):
            return self._failed(outcome, pods)
        if left or sight.stage == "gone" or was_disrupted(pods):
            self._again(death(pods) or sight.detail)
            return None
        first = next((pod["metadata"]["name"] for pod in pods if death([pod])), None)
        lines = self._kube.log(first, TAIL) if first else []
        said = [f"the last lines of {first}:", *lines] if lines else []
        outcome = self._failed(Outcome(FAILED, sight.detail, "silent"), pods)
        return replace(outcome, message="\n".join([outcome.message, *said]))

    def _is_ours_to_resubmit(self) -> bool:
        """A job that another run had submitted went with that run; this run's goes on."""
        return self._name != self._job.identity.name

    def _again(self, why: str) -> None:
        """Submit the job once more; it goes on from its last checkpoint."""
        self._say(f"restarting at the last checkpoint: {why}")
        self._delete(self._name)
        self._name = ""

    def _failed(self, outcome: Outcome, pods: list[Object]) -> Outcome:
        """The verdict on a job that will not end well, with what is known of it; nothing of it goes on."""
        known = death(pods)
        self._delete(self._name)
        rank = next((r for r in self._ranks if Outcome.read(self._spec.outcome(r)) == outcome), None)
        lines = self._logs.tail(rank) if rank is not None and outcome.exit_code != InputError.exit_code else []
        tail = "\n".join(["", f"the last lines of rank {rank}:", *lines]) if lines else ""
        return Outcome(outcome.exit_code, f"{outcome.message}{f' ({known})' if known else ''}{tail}", outcome.kind)
