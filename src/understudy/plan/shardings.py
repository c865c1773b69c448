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
    find_sharding = ShardingPropagator.propagate_op_sharding_non_cached

    @wraps(find_sharding)
    def propagate(self: ShardingPropagator, schema: OpSchema) -> OutputSharding:
        meshes: list[DeviceMesh] = []
        key = (schema.op, dist.get_world_size(), _key((schema.args_schema, schema.kwargs_schema), meshes))
        try:
            sharding = _remembered.get(key)
        except TypeError:  # an unhashable argument
            return find_sharding(self, schema)
        if len(meshes) != 1:  # several may be parts of one another
            return find_sharding(self, schema)
        if sharding is None:
            sharding = _remembered[key] = find_sharding(self, schema)
        return cast("OutputSharding", _on_mesh(meshes[0], sharding))

    with patch.object(ShardingPropagator, "propagate_op_sharding_non_cached", propagate):
        yield


def _key(value: Any, meshes: list[DeviceMesh]) -> Any:
    """The inputs that determine a result: of a mesh, its shape and this rank's coordinates."""
    if isinstance(value, DTensorSpec):
        placed = tuple((type(placement), placement) for placement in value.placements)
        options = value.shard_order, value.use_strided_shard_as_shard_order
        return _key(value.mesh, meshes), placed, value.tensor_meta, options
    if isinstance(value, DeviceMesh):
        if value not in meshes:
            meshes.append(value)
        return value.device_type, value._layout, value.mesh_dim_names, tuple(value.get_coordinate() or ())
    if isinstance(value, tuple | list):
        return type(value), tuple(_key(placement, meshes) for placement in value)
    if isinstance(value, Mapping):
        return tuple((name, _key(placement, meshes)) for name, placement in value.items())
    return type(value), value


def _on_mesh(mesh: DeviceMesh, value: Any) -> Any:
    """A result on another mesh."""
    if isinstance(value, DTensorSpec):
        order = None if value.use_strided_shard_as_shard_order else value.shard_order
        options: Any = order, value.use_strided_shard_as_shard_order
        return DTensorSpec(mesh, value.placements, value.tensor_meta, *options)
    if isinstance(value, OpSchema):
        return OpSchema(
            value.op, _on_mesh(mesh, value.args_schema), _on_mesh(mesh, value.kwargs_schema), value.schema_info
        )
    if isinstance(value, OutputSharding):
        flags = value.needs_redistribute, value.use_val_from_redistribute_schema
        return OutputSharding(_on_mesh(mesh, value.output_spec), _on_mesh(mesh, value.redistribute_schema), *flags)
    if isinstance(value, DeviceMesh):
        return mesh
    if type(value) in (tuple, list):
        return type(value)(_on_mesh(mesh, item) for item in value)
    if type(value) is dict:
        return {name: _on_mesh(mesh, item) for name, item in value.items()}
    return value
