"""What a launcher and its ranks agree on: the specification, its folder, heartbeats, attempts, outcomes, logs."""
