"""The shared volume: immutable objects by digest, the step cache, leases, run folders, and their gc."""

from understudy.store.lease import Lease
from understudy.store.objects import Manifest
from understudy.store.runs import Run, StepState
from understudy.store.store import Store

__all__ = ["Lease", "Manifest", "Run", "StepState", "Store"]
