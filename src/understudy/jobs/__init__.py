"""The protocol between a launcher and its ranks: specification, folder, heartbeats, attempts, outcomes, logs."""
