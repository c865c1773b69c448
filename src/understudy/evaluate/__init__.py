"""Is the student good enough? Measure all models on the test split, compare, decide, and show why.

metrics     from sums over examples to a metric's value: one function each
statistics  which models are compared on which examples; the paired bootstrap
intervals   intervals that keep their promise, and the smallest loss that a test set can see
results     from per-example results to what measures.json says about quality
splits      the test split as each model sees it
scoring     from logits to per-example results
answers     one model's results, which are kept for all runs
latency     all models timed in turn
trivial     what one can say without looking at the example
measure     the evaluate step: writes measures.json and per_example.npz
contents    what measures.json and verdict.json hold
gate        the gate step: the verdict, rule by rule
quality     the rules about quality: against models, the trivial predictor, a minimum
cautions    what a reader has to know before the rules
report      one HTML file that shows the evidence, with the plots of plots.py
"""
