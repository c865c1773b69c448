"""Tests that need several processes: the ranks of a job, most of them from one pool."""
