"""Run a pipeline on this machine with kfp.local:  python -m understudy.pipelines.here RUN_FOLDER."""

import logging
import sys
from pathlib import Path

from understudy.agent.parent import die_with_parent
from understudy.recipe import Recipe
from understudy.store import Run


def main() -> None:
    """Run the pipeline of a run's recipe; the steps record their outcome in the run's folder."""
    die_with_parent()  # before the imports, which take seconds
    from kfp import local

    from understudy.pipelines.distillation import build

    logging.disable(logging.INFO)  # kfp's messages for every task; the steps have theirs
    run = Run(Path(sys.argv[1]))
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(run.folder / "kfp"), raise_on_error=False)
    build(Recipe.model_validate(run.recipe))()


if __name__ == "__main__":
    main()
