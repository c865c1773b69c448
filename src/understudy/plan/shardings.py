"""A cache of DTensor's sharding propagation, kept from one trace to the next.

DTensor has a cache, too, for the life of its meshes: the next rank, or other degrees, have other process groups. The
shardings of an operation follow from a mesh's shape alone, so that a result is valid for all meshes of that shape.
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
"""Results with their original meshes, each of which a later mesh replaces."""


@contextmanager
def remembered_shardings() -> Iterator[None]:
    """Within the context, shardings are reused for meshes of the same shape."""
    find = ShardingPropagator.propagate_op_sharding_non_cached

    @wraps(find)
    def propagate(self: ShardingPropagator, schema: OpSchema) -> OutputSharding:
        meshes: list[DeviceMesh] = []
        key = (schema.op, dist.get_world_size(), _key((schema.args_schema, schema.kwargs_schema), meshes))
        try:
            sharding = _remembered.get(key)
        except TypeError:  # an unhashable argument
            return find(self, schema)
        if len(meshes) != 1:  # several may be parts of one another
            return find(self, schema)
        if sharding is None:
            sharding = _remembered[key] = find(self, schema)
        return cast("OutputSharding", _on(meshes[0], sharding))

    with patch.object(ShardingPropagator, "propagate_op_sharding_non_cached", propagate):
        yield


def _key(thing: Any, meshes: list[DeviceMesh]) -> Any:
    """The inputs that determine a result: of a mesh, its shape and this rank's coordinates."""
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
    """A result on another mesh."""
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
