"""Launchers: who runs a job, on this machine or in a cluster."""
