"""Five thousand sequences of faults of the launchers' state machine, other ones in each run.

They are drawn in parts: hypothesis's records of earlier sequences make each later one slower.
"""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.launch.kubernetes.test_state_machine import Launchers

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

PARTS, SEQUENCES = 20, 250


@pytest.mark.parametrize("part", range(PARTS))
def test_no_sequence_breaks_a_promise(part: int) -> None:
    drawn = settings(Launchers.TestCase.settings, max_examples=SEQUENCES, derandomize=False)
    run_state_machine_as_test(Launchers, settings=drawn)
