"""Checks the recipe with the run's own values and makes the run's folder."""
