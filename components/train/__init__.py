"""Trains or fetches a model: the teacher, the student, or the control."""
