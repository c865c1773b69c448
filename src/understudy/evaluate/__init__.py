"""Evaluation and gate: measure all models on the test split, compare them, decide, and show the evidence.

metrics     from sums over examples to a metric's value: one function each
statistics  paired bootstrap of models on common examples
intervals   confidence intervals with nominal coverage, and the smallest loss that a test set can detect
results     from per-example results to the quality of models in measures.json
splits      the test split as each model sees it
scoring     from logits to per-example results
answers     one model's results, which are cached for all runs
latency     all models timed in turn
trivial     the trivial predictor, which ignores the example
measure     the evaluate step: writes measures.json and per_example.npz
benchmark   the benchmark step: scores on tasks of lm-eval (benchmark_tasks, _model, _scores)
contents    the types of measures.json and verdict.json
gate        the gate step: the verdict, rule by rule
quality     the rules about quality: against models, the trivial predictor, a minimum
cautions    warnings to read before the rules
report      one HTML file that shows the evidence, with the plots of plots.py
"""
