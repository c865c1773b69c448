"""Trains or fetches the teacher, once for all runs that share it."""
