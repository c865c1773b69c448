"""The settings of a task that launches a job: all for the job, and some for the task's pod too.

The task's pod only launches and watches. It needs the store and its environment; only the job needs GPUs.
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
