"""Parallelism: a model over processes, by degrees on one device mesh, applied in a fixed order; and its checkpoints."""
