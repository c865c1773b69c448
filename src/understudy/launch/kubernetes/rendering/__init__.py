"""Manifests of jobs: the pod, the settings of the KFP task, and each kind of job around it."""
