"""The tests, by what they need: unit (one process), ranks (several), registry (MLflow's servers), server
(understudy-server), cluster, full."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout."""
