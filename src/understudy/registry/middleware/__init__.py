"""ASGI middleware before MLflow's own server: an allowlist, limits on bodies, and settings of its pages.

`understudy ui` uses it on one machine, and the distribution understudy-server in a cluster.
"""
