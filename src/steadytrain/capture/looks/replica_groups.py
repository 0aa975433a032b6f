"""Which ranks hold the same values of a tensor: replicas of a model, or of a part of it.

A tensor that is split over a device mesh (DTensor) has equal parts on the ranks that have the same place in every
dimension over which it is split. A plain tensor is held by all ranks of the data-parallel wrapper or of the mesh. No
collective is made: a rank knows its own groups only. Not here: the digests (``replica_digests``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from steadytrain.capture.step import ranks
from steadytrain.capture.step.ranks import JointSteps

ALONE = 0
"""The group of a tensor that no other rank is known to hold."""

OWN_PARTS = frozenset({"pp", "pipe", "pipeline", "stage", "stages", "ep", "expert", "experts"})
"""Words in the name of a mesh's dimension along which each rank has layers or experts of its own."""

_SHARDING = ("FullyShardedDataParallel", "DeepSpeedEngine")
_GROUPS = 1 << 22


class ReplicaGroups:
    """Serves the parameters and buffers of one stream.

    The group of a tensor is a whole number below 2^23 that is equal on the ranks that hold it, odd where the model is
    split over a mesh. It is negative where the ranks may also have values of their own: plain parameters that a
    sharding wrapper leaves out, and buffers. ``ALONE`` if nothing is known of another holder.
    """

    def __init__(self, joint: JointSteps | None, roots: Iterable[nn.Module], parameters: Sequence[Tensor]) -> None:
        meshes = [mesh for one in parameters if (mesh := _mesh(one)) is not None]
        self._is_split = bool(meshes)
        self._whole = max(meshes, key=lambda one: (one.mesh.ndim, one.mesh.numel()), default=None)
        self._all = ranks.ranks_of(joint.group if joint is not None else None)
        self._left_out = _left_out(joint)
        modules = [module for root in roots for module in root.modules()]
        wrappers = [type(one).__name__ for one in joint.wrappers] if joint is not None else []
        self._is_sharded = any(one in _SHARDING for one in wrappers) or any(map(_is_fully_sharded, modules))
        self._known: dict[Any, int] = {}

    def of_parameter(self, parameter: Tensor) -> int:
        """The group of a parameter."""
        group = self._group(parameter)
        is_certain = _mesh(parameter) is not None or not (self._is_sharded or id(parameter) in self._left_out)
        return group if is_certain else -group

    def of_buffer(self, buffer: Tensor) -> int:
        """The group of a buffer, which is negative: what the script keeps there may be the rank's own."""
        return -self._group(buffer)

    def _group(self, tensor: Any) -> int:
        mesh = _mesh(tensor)
        key = None if mesh is None else (id(mesh), tuple(map(str, tensor.placements)))
        if key not in self._known:
            self._known[key] = self._number(self._holders(tensor, mesh))
        return self._known[key]

    def _number(self, holders: Sequence[int]) -> int:
        if len(holders) < 2:
            return ALONE
        text = hashlib.blake2b(repr(tuple(holders)).encode(), digest_size=4).digest()
        return 2 * (1 + int.from_bytes(text, "big") % (_GROUPS - 1)) + self._is_split

    def _holders(self, tensor: Any, mesh: Any) -> Sequence[int]:
        """The ranks that hold what this rank holds of the tensor, in order."""
        if mesh is None:
            return self._all if self._whole is None else _along(self._whole, ())
        if any(one.is_partial() for one in tensor.placements):
            return ()
        split = [at for at, one in enumerate(tensor.placements) if not one.is_replicate()]
        dimensions = _dimensions(mesh, self._whole)
        if dimensions is None:
            return _along(mesh, split)
        return _along(self._whole, [dimensions[at] for at in split])


def local_part(tensor: Any) -> Tensor:
    """What this rank holds of a tensor, without a collective."""
    with torch.no_grad():
        part: Tensor = tensor.to_local() if _mesh(tensor) is not None else tensor
        return part


def _mesh(tensor: Any) -> Any:
    return tensor.device_mesh if type(tensor) is not Tensor and hasattr(tensor, "placements") else None


def _along(mesh: Any, split: Container[int]) -> Sequence[int]:
    """The ranks of a mesh that have this rank's place in the dimensions of ``split``, and in those along which each has
    a part of its own."""
    place, names = mesh.get_coordinate(), mesh.mesh_dim_names or ()
    if place is None:
        return ()
    own = [at for at, name in enumerate(names) if OWN_PARTS.intersection(str(name).lower().split("_"))]
    chosen = tuple(place[at] if at in split or at in own else slice(None) for at in range(mesh.mesh.ndim))
    found: list[int] = np.atleast_1d(_ranks(mesh)[chosen]).reshape(-1).tolist()
    return sorted(found)


def _dimensions(part: Any, whole: Any) -> list[int] | None:
    """The dimension of the mesh ``whole`` that each one of ``part`` is; None if it is no part of that mesh."""
    if part is whole:
        return list(range(whole.mesh.ndim))
    place, of_part = whole.get_coordinate(), part.get_coordinate()
    if place is None or of_part is None:
        return None
    found: list[int] = []
    for at in range(part.mesh.ndim):
        line = _line(part, of_part, at)
        same = [one for one in range(whole.mesh.ndim) if _line(whole, place, one) == line and one not in found]
        if not same:
            return None
        found.append(same[0])
    return found


def _line(mesh: Any, place: Sequence[int], dimension: int) -> list[int]:
    """The ranks along one dimension through ``place``."""
    chosen = tuple(slice(None) if at == dimension else one for at, one in enumerate(place))
    found: list[int] = np.atleast_1d(_ranks(mesh)[chosen]).tolist()
    return found


def _ranks(mesh: Any) -> NDArray[np.int64]:
    found: NDArray[np.int64] = mesh.mesh.cpu().numpy()
    return found


def _left_out(joint: JointSteps | None) -> set[int]:
    """The parameters, by id, that a data-parallel wrapper was asked to leave alone."""
    found: set[int] = set()
    for wrapper in joint.wrappers if joint is not None else ():
        names = getattr(wrapper, "parameters_to_ignore", None)
        module = getattr(wrapper, "module", None)
        if names and isinstance(module, nn.Module):
            found |= {id(one) for name, one in module.named_parameters() if name in names}
    return found


def _is_fully_sharded(module: nn.Module) -> bool:
    return any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__)
