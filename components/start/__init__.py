"""Checks the recipe with the run's overrides and creates the run's folder."""
