"""Launchers, which run jobs on this machine or in a cluster."""
