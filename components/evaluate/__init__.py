"""Measures teacher, student, control and champion side by side on the test split."""
