"""Measured claims: each against peers on the same work in one run, minimum and median of several rounds."""
