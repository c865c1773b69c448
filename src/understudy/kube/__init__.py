"""A cluster as launchers and runs see it: its API, its settings, and the state of jobs, pods and owners."""
