"""Image classification: one of a fixed set of labels for each image.

Like every task's module (task.py), it imports nothing heavy at its top.
"""

METRICS: tuple[str, ...] = ("accuracy", "nll", "calibration_error")
SETTINGS: frozenset[str] = frozenset({"data.image", "model.labels", "model.normalization", "train.augment"})
LABELS_WEIGHT: float = 0.3
"""Chosen with benchmarks/defaults.py, as the temperature."""
TEMPERATURE: float = 2.0
