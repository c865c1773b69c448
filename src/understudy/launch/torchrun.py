"""torchrun on one node, tied to its parent's life, saying which rank failed first and how.

python -m understudy.launch.torchrun JOB.json
"""

import sys
from pathlib import Path

from understudy.launch.family import die_with_parent


def main() -> int:
    """Run the job's ranks; the exit code is 0 when all of them ended well."""
    die_with_parent()
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a stop comes through the stop file
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from understudy.launch.local import death
    from understudy.launch.spec import JobSpec

    spec = JobSpec.read(Path(sys.argv[1]))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=spec.processes,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=f"{spec.logs}/{spec.role}", redirects=Std.ALL),
    )
    try:
        elastic_launch(config, sys.executable)("-m", "understudy.worker", sys.argv[1])
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        death(rank, failure.exitcode, spec).write(spec.outcome(-1))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
