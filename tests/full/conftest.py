"""The stage of the tests of faults: a store with prepared examples, and what undisturbed teachers come to."""

from tests.ranks.faults.conftest import prepared, stage, undisturbed

__all__ = ["prepared", "stage", "undisturbed"]
