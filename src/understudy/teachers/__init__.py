"""Teachers: what gives a signal for a batch."""
