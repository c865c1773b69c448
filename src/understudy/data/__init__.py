"""From a source to batches: source -> records (ingest) -> examples (prepare) -> batches (loader)."""
