"""What every rank of a job runs: `python -m understudy.worker JOB.json`, under torchrun or alone."""

import signal
import sys
import traceback
from pathlib import Path

from understudy.launch.family import die_with_parent


def main() -> int:
    """Do this rank's part of the job, and say in its outcome file how it ended."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a stop comes through the stop file
    import os

    from understudy import __version__
    from understudy.errors import FAILED, UnderstudyError
    from understudy.launch.spec import JobSpec, Outcome

    spec = JobSpec.read(Path(sys.argv[1]))
    rank = int(os.environ["RANK"])
    try:
        if spec.version != __version__:
            raise UnderstudyError(f"the job was written by understudy {spec.version}, this image has {__version__}")
        from understudy.train.job import run

        run(spec)
        outcome = Outcome(0)
    except UnderstudyError as error:
        spec.clear()
        print(error, file=sys.stderr)
        outcome = Outcome(error.exit_code, str(error))
    except BaseException as error:
        spec.clear()
        traceback.print_exc()
        message = f"rank {rank}: {_one_line(error)}; the whole story is in {spec.logs}"
        outcome = Outcome(FAILED, message, "raised")
    outcome.write(spec.outcome(rank))
    return outcome.exit_code


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


if __name__ == "__main__":
    sys.exit(main())
