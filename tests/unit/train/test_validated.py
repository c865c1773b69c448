"""A curve's validated points."""

import subprocess
import sys

from understudy.train.validated import best_step, losses

CURVE = [{"step": 2, "validation_loss": 1.0}, {"step": 3}, {"step": 4, "validation_loss": 0.5}]
CURVE += [{"step": 6, "validation_loss": 0.5}]


def test_the_first_of_the_smallest_losses_is_the_best() -> None:
    assert losses(CURVE) == [(2, 1.0), (4, 0.5), (6, 0.5)]
    assert best_step(CURVE) == 4


def test_it_is_read_without_torch() -> None:
    code = "import sys, understudy.train.validated; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
