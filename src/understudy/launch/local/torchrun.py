"""torchrun on this machine: it ends with its parent, and reports the first rank to fail.

python -m understudy.launch.local.torchrun JOB.json
"""

import logging
import sys
from pathlib import Path
from signal import SIGTERM

from understudy import logs
from understudy.agent.parent import die_with_parent

log = logging.getLogger("understudy.launch.local.torchrun")  # `python -m` calls this module __main__


def main() -> int:
    """Run the job's ranks; the exit code is 0 if all succeeded."""
    die_with_parent()
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a stop comes through the stop file
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from understudy.errors import UnderstudyError
    from understudy.jobs.specification import JobSpec
    from understudy.launch.local.kills import oom_kill_count
    from understudy.launch.local.launcher import death

    try:
        logs.configure()
        spec = JobSpec.read(Path(sys.argv[1]))
    except UnderstudyError as error:
        log.error("%s", error)
        return error.exit_code
    initial_count = oom_kill_count()
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=spec.processes,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=str(spec.rank_logs), redirects=Std.ALL),
    )
    try:
        elastic_launch(config, sys.executable)("-m", "understudy.agent.worker", sys.argv[1])
    except ChildFailedError as error:
        failures = {rank: (failure.timestamp, failure.exitcode) for rank, failure in error.failures.items()}
        death(*first_to_fail(failures), spec, initial_count).write(spec.outcome(-1))
        return 1
    return 0


def first_to_fail(failures: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """The rank that failed first, and its exit code.

    Args:
        failures: by rank, the time of detection in whole seconds, and the exit code. They include torchrun's kills:
            SIGTERM immediately for the remaining ranks, and SIGKILL half a minute later.
    """
    start = min(at for at, _ in failures.values())

    def order(rank: int) -> tuple[bool, bool, int]:
        at, code = failures[rank]
        by_another = code < 0 and code != -SIGTERM and at < start + 10
        return not by_another, code < 0, at

    first = min(failures, key=order)
    return first, failures[first][1]


if __name__ == "__main__":
    sys.exit(main())
