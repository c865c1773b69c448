"""The node agent, the main process of a job's pod: it starts this node's ranks under torchrun and waits for their end.

python -m understudy.agent.node JOB.json
"""

import logging
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

from understudy import logs
from understudy.agent import node_cache
from understudy.agent.eviction import EVICTION
from understudy.agent.exit_codes import exit_code
from understudy.agent.parent import die_with_parent
from understudy.agent.rendezvous import await_others, rendezvous
from understudy.agent.watchdog import CLOSED, Watchdog
from understudy.errors import UnderstudyError
from understudy.jobs.specification import JobSpec
from understudy.store.files import share

log = logging.getLogger("understudy.agent.node")  # `python -m` calls this module __main__


def main() -> int:
    """Run this node's ranks, and return the pod's exit code."""
    die_with_parent()  # and set the ranks' parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the stop file signals a stop
    try:
        logs.configure()
        return run(Path(sys.argv[1]))
    except UnderstudyError as error:
        log.error("%s", error)
        return error.exit_code


def run(path: Path) -> int:
    """Run this node's ranks to their end.

    Args:
        path: the job's specification.

    Returns:
        The pod's exit code.
    """
    spec = JobSpec.read(path)
    share(Path(spec.folder))
    logs.copy_to(spec.agent_log(socket.gethostname()))  # the pod's log is lost with the pod, or with its node
    eviction = Path(tempfile.mkdtemp()) / "eviction"
    os.environ[EVICTION] = str(eviction)
    # Otherwise ranks that restart because a node joined or left read each other's old addresses.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    watchdog = Watchdog(spec, eviction)
    signal.signal(signal.SIGTERM, watchdog.evict)
    watchdog.start()  # before anything is copied or imported: a pod may be evicted in its first minute
    return exit_code(spec, _failures(spec, node_cache.local(spec, path)), eviction)


def _failures(spec: JobSpec, path: Path) -> dict[int, int] | None:
    """Exit codes of this node's failed ranks, by rank; None if the rendezvous failed or nodes lost each other."""
    from torch.distributed import DistError
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousClosedError, RendezvousError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    met = await_others(rendezvous(os.environ))
    config = LaunchConfig(
        min_nodes=met.min_nodes,
        max_nodes=met.max_nodes,
        run_id=met.run_id,
        rdzv_backend=met.backend,
        rdzv_endpoint=met.endpoint,
        rdzv_configs=dict(met.configs),
        nproc_per_node=spec.processes,
        max_restarts=0,  # the operator restarts pods, and the launcher limits how often
        monitor_interval=0.1,  # seconds; the end of a pod waits for this check
        signals_to_handle="SIGINT",  # the watchdog handles SIGTERM
        logs_specs=DefaultLogsSpecs(log_dir=tempfile.mkdtemp()),
    )
    try:
        elastic_launch(config, sys.executable)("-m", "understudy.agent.worker", str(path))
    except ChildFailedError as error:
        return {rank: failure.exitcode for rank, failure in error.failures.items()}
    except RendezvousClosedError:
        log.warning("this job's rendezvous is closed: a node has failed, and others still wait in it")
        (Path(spec.folder) / CLOSED).touch()
        return None
    except (RendezvousError, ConnectionError, DistError) as error:  # they do not distinguish the two
        log.warning("the nodes did not find each other, or lost each other: %s", error)
        return None
    return {}


if __name__ == "__main__":
    sys.exit(main())
