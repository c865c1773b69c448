"""Teachers: each gives a signal for a batch."""
