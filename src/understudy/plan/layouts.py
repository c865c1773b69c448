"""The layouts by which a planned training is cut into stages."""

import json

import numpy as np
import torch

from understudy.models.build import uninitialized_model
from understudy.parallel.apply import Spread
from understudy.parallel.layout import EXAMPLES, Layout, layout
from understudy.plan.planned import Planned
from understudy.plan.simulation import simulated_rank
from understudy.recipe import Degrees

_layouts: dict[tuple[str, str, tuple[int, ...]], Layout] = {}
"""Layouts of models, by description, recipe path and input shape."""


def layout_with(planned: Planned, degrees: Degrees) -> Layout:
    """The layout of a training's model with these degrees."""
    with simulated_rank(planned.train, degrees, 0, torch.float32) as spread:
        return layout_over(planned, spread)


def layout_over(planned: Planned, spread: Spread) -> Layout:
    """The layout of a training's model over ranks.

    It is computed once for each model and sequence length: other degrees do not change it.
    """
    inputs, _, _ = spread.own_positions(*planned.examples.batch(np.zeros(EXAMPLES, dtype=np.int64)))
    path = planned.settings.train_path
    key = json.dumps(planned.model, sort_keys=True), path, tuple(inputs.shape)
    if key not in _layouts:
        _layouts[key] = layout(uninitialized_model(planned.model, path), inputs, path)
    return _layouts[key]
