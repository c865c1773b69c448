"""The imports of every process of a pool of ranks: one process imports, and all others are forked off it.

It has one thread then: importing starts none. Torch is to compute in one, too.
"""

import os
from importlib import import_module

os.environ["OMP_NUM_THREADS"] = "1"

for name in (
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "understudy.agent.training",
    "tests.ranks.train.jobs",
):
    import_module(name)
for name in ("bert", "gpt2", "llama", "vit"):
    import_module(f"transformers.models.{name}.modeling_{name}")
