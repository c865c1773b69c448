"""The Kubernetes launchers: a job as an object of a training operator, supervised to its end."""
