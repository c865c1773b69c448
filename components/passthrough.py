"""What is set on a task that launches a job, and where it goes: to the job, and some of it to the task's own pod too.

The task's pod only launches and watches. It needs the store and its environment; the GPUs are the job's alone.
"""

from kfp.dsl import TaskConfigField, TaskConfigPassthrough

TO_THE_JOB = [
    TaskConfigPassthrough(field=TaskConfigField.RESOURCES),
    TaskConfigPassthrough(field=TaskConfigField.KUBERNETES_NODE_SELECTOR),
    TaskConfigPassthrough(field=TaskConfigField.KUBERNETES_TOLERATIONS),
    TaskConfigPassthrough(field=TaskConfigField.KUBERNETES_AFFINITY),
    TaskConfigPassthrough(field=TaskConfigField.ENV, apply_to_task=True),
    TaskConfigPassthrough(field=TaskConfigField.KUBERNETES_VOLUMES, apply_to_task=True),
]
