"""Trains the student with the teacher."""
