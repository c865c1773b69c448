"""Whole runs in a cluster without KFP: submission, following, and orphaned jobs."""
