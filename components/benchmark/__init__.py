"""Scores teacher, student and control on lm-eval's tasks."""
