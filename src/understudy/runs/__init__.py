"""Whole runs in a cluster without KFP: submitted, followed, and what they leave behind."""
