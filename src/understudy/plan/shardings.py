"""Where DTensor's operations have what they make, remembered from one trace to the next.

DTensor remembers it, too, for as long as its meshes are: those of the next rank, or of other degrees, have other groups
of processes. What an operation needs and makes follows from a mesh's shape alone: the answer for one is that for all.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, cast
from unittest.mock import patch

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.distributed.tensor._sharding_prop import ShardingPropagator

_remembered: dict[Any, OutputSharding] = {}
"""With the meshes that they were found for, of which no more than their place is of use later."""


@contextmanager
def remembered_shardings() -> Iterator[None]:
    """Within it, what was found for meshes of the same shape is not looked for again."""
    find = ShardingPropagator.propagate_op_sharding_non_cached

    @wraps(find)
    def found(self: ShardingPropagator, schema: OpSchema) -> OutputSharding:
        meshes: list[DeviceMesh] = []
        key = (schema.op, dist.get_world_size(), _key((schema.args_schema, schema.kwargs_schema), meshes))
        try:
            known = _remembered.get(key)
        except TypeError:  # something in it has no hash
            return find(self, schema)
        if len(meshes) != 1:  # several may be parts of one another
            return find(self, schema)
        if known is None:
            known = _remembered[key] = find(self, schema)
        return cast("OutputSharding", _on(meshes[0], known))

    with patch.object(ShardingPropagator, "propagate_op_sharding_non_cached", found):
        yield


def _key(thing: Any, meshes: list[DeviceMesh]) -> Any:
    """All that an answer follows from: of a mesh its shape, and this rank's place in it."""
    if isinstance(thing, DTensorSpec):
        placed = tuple((type(each), each) for each in thing.placements)
        how = thing.shard_order, thing.use_strided_shard_as_shard_order
        return _key(thing.mesh, meshes), placed, thing.tensor_meta, how
    if isinstance(thing, DeviceMesh):
        if thing not in meshes:
            meshes.append(thing)
        return thing.device_type, thing._layout, thing.mesh_dim_names, tuple(thing.get_coordinate() or ())
    if isinstance(thing, tuple | list):
        return type(thing), tuple(_key(each, meshes) for each in thing)
    if isinstance(thing, Mapping):
        return tuple((name, _key(each, meshes)) for name, each in thing.items())
    return type(thing), thing


def _on(mesh: DeviceMesh, thing: Any) -> Any:
    """The same on another mesh."""
    if isinstance(thing, DTensorSpec):
        order = None if thing.use_strided_shard_as_shard_order else thing.shard_order
        how: Any = order, thing.use_strided_shard_as_shard_order
        return DTensorSpec(mesh, thing.placements, thing.tensor_meta, *how)
    if isinstance(thing, OpSchema):
        return OpSchema(thing.op, _on(mesh, thing.args_schema), _on(mesh, thing.kwargs_schema), thing.schema_info)
    if isinstance(thing, OutputSharding):
        needs = thing.needs_redistribute, thing.use_val_from_redistribute_schema
        return OutputSharding(_on(mesh, thing.output_spec), _on(mesh, thing.redistribute_schema), *needs)
    if isinstance(thing, DeviceMesh):
        return mesh
    if type(thing) in (tuple, list):
        return type(thing)(_on(mesh, each) for each in thing)
    if type(thing) is dict:
        return {name: _on(mesh, each) for name, each in thing.items()}
    return thing
