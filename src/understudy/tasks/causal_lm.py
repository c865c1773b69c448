"""Causal language modelling: every token of a document, from those before it.

Like every task's module (task.py), it imports nothing heavy at its top.
"""

METRICS: tuple[str, ...] = ("bits_per_byte", "perplexity", "nll", "accuracy", "calibration_error")
SETTINGS: frozenset[str] = frozenset({"data.text", "evaluate.stride"})
LABELS_WEIGHT: float = 0.2
"""Chosen with benchmarks/defaults.py, as the temperature. With labels 0.1 and logits 0.9 at T = 4, an earlier default,
students were 10 % worse than their control."""
TEMPERATURE: float = 1.0
