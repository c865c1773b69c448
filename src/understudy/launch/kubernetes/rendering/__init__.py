"""A job as the object that an operator takes: its pod, what was set on its task, and each kind of job around it."""
