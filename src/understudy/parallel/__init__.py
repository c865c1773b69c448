"""How a model is spread over processes: degrees on one device mesh, applied in a fixed order; and its checkpoints."""
