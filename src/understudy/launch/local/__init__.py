"""The local launcher: a job's ranks as processes of this machine."""
