"""Trains the student without the teacher: same budget, same seed."""
