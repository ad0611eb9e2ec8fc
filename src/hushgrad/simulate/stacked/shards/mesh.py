"""The devices of a run, one shard of agents on each, in this process and in others.

Arrays by agent have the shards one behind the other on their first axis, alike in shape. Every
process makes the rows of its own shards.

The other modules of this package ask it for their shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from hushgrad.errors import InputError

AXIS = "agents"
_PART_BYTES = 2**25  # of an array that all processes see at once


@dataclass(frozen=True)
class Shards:
    """The devices in the order of their shards."""

    mesh: Mesh  # with the one axis AXIS

    @staticmethod
    def of(wish: Any) -> Shards | None:
        """The devices of `hg.run(mesh=…)`; None: a single device, where nothing is divided."""
        if wish is None:
            return None
        if isinstance(wish, str) and wish == "auto":
            devices = np.array(jax.devices())
        elif isinstance(wish, Mesh):
            devices = wish.devices.ravel()
        else:
            raise InputError(
                'a mesh is None, "auto" for all devices, or a jax.sharding.Mesh, but '
                f"mesh = {wish!r}."
            )
        owners = np.bincount([device.process_index for device in devices])
        if len(np.unique(owners)) > 1:
            raise InputError(
                "a mesh has equally many devices of every process, but there are "
                f"{', '.join(map(str, owners))}. Use the same number from each."
            )
        return None if len(devices) == 1 else Shards(Mesh(devices, (AXIS,)))

    @property
    def n(self) -> int:
        return self.mesh.devices.size

    @cached_property
    def mine(self) -> list[int]:
        """The numbers of the shards of this process."""
        me = jax.process_index()
        return [s for s, d in enumerate(self.mesh.devices) if d.process_index == me]

    @property
    def is_first(self) -> bool:
        """Whether this process writes what all have computed."""
        return 0 in self.mine

    @property
    def n_processes(self) -> int:
        return self.n // len(self.mine)

    def together[T: np.generic](self, rows: Mapping[int, NDArray[T]]) -> NDArray[T]:
        """(shards, …) from the rows of this process's shards and those of the others."""
        own = np.stack([rows[s] for s in self.mine])
        if self.n_processes == 1:
            return own
        numbers = np.array(self.mine)
        every, where = multihost_utils.process_allgather((own, numbers))
        found = np.empty((self.n, *own.shape[1:]), own.dtype)
        found[where.ravel()] = every.reshape(found.shape)
        return found

    def put(self, make: Callable[[int], Any]) -> Any:
        """Trees `make(shard)` of arrays (rows, …), as arrays (shards · rows, …) on the devices."""
        placed = [jax.device_put(make(s), self.mesh.devices[s]) for s in self.mine]
        return jax.tree.map(self._join, *placed)

    def _join(self, *parts: Any) -> Any:
        rows, *rest = parts[0].shape
        sharding = NamedSharding(self.mesh, PartitionSpec(AXIS))
        return jax.make_array_from_single_device_arrays(
            (self.n * rows, *rest), sharding, list(parts)
        )

    def share(self, tree: Any) -> Any:
        """The same arrays on every device; every process has them."""
        sharding = NamedSharding(self.mesh, PartitionSpec())

        def place(array: Any) -> Any:
            array = np.asarray(array)
            return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

        return jax.tree.map(place, tree)

    def parts(self, array: Any) -> Iterator[tuple[slice, NDArray[Any]]]:
        """The rows of an array by agent: which of every shard, and (shards, rows, …) of all.

        Parts are small, since every process gets them.
        """
        first = {shard.device: np.asarray(shard.data) for shard in array.addressable_shards}
        own = {s: first[self.mesh.devices[s]] for s in self.mine}
        n_rows = len(own[self.mine[0]])
        step = max(1, _PART_BYTES // max(1, array.nbytes // max(1, n_rows)))
        for low in range(0, n_rows, step):
            part = slice(low, low + step)
            yield part, self.together({s: rows[part] for s, rows in own.items()})
