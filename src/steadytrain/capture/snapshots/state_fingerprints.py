"""Fingerprints a run's state: digests, norms and plain values of model, optimizer, schedulers and generators by name.

A fingerprint is written when the script reads an optimizer's state dict, the first part of saving a checkpoint. It is
stored in ``saved/`` of the run, and ``steadytrain audit`` compares checkpoints with it. Not here: reading checkpoints,
and judging differences (``compare``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import named_places, plain_name
from steadytrain.capture.snapshots.digests import digest
from steadytrain.capture.step.input_recorder import RandomState
from steadytrain.compare.checkpoint_contents import CheckpointContents, Held, plain_state
from steadytrain.core.torch_private import BUFFERS, INNER_SCHEDULERS, PARAMETERS, TRANSIENT_BUFFERS

CHUNK_BYTES = 8 << 20
"""Elements of a device tensor processed at once; the temporary memory is a few times this."""

HOST_CHUNK_BYTES = 256 << 10
"""The same on the host, where the float64 squares fit the cache (measured: five times as fast)."""

SAMPLE_MAX = 1 << 16
"""Elements checked for whether they fit a shorter format."""

SCHEDULER_UNTOLD = ("optimizer", "lr_lambdas", INNER_SCHEDULERS.attribute, "step", "_initial_step")
"""Functions and other objects; schedulers save the state of these in their own ways."""


def hold(tensors: Mapping[str, Tensor]) -> dict[str, Held]:
    """Every tensor's shape, dtype, digest and norm."""
    # For a tensor sharded over ranks, this rank has no digest, only shape and dtype.
    held = {name: Held(tuple(tensor.shape), _dtype(tensor)) for name, tensor in tensors.items()}
    whole = {name: tensor.detach() for name, tensor in tensors.items() if not hasattr(tensor, "to_local")}
    looked = [_look(tensor) for tensor in whole.values()]
    fits = _fetch([fit for fit, _ in looked], torch.int64)
    squares = _fetch([square for _, square in looked], torch.float64)
    for (name, tensor), (bfloat16, float16), (square,) in zip(whole.items(), fits, squares, strict=True):
        finite = square == square and square != float("inf")
        held[name] = Held(
            shape=tuple(tensor.shape),
            dtype=_dtype(tensor),
            digest=digest(tensor).rpartition(":")[2],
            norm=square**0.5 if finite else square,
            rounded="bfloat16" if bfloat16 else "float16" if float16 else None,
            nonfinite=0 if finite or not tensor.is_floating_point() else _nonfinite(tensor),
        )
    return held


def optimizer_parts(
    groups: Sequence[Mapping[str, Any]], state: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, float], tuple[dict[str, Any], ...]]:
    """Moments, step counters and settings of an optimizer whose state is keyed by parameter name."""
    moments: dict[str, Tensor] = {}
    counters: dict[str, float] = {}
    for parameter, entries in state.items():
        for name, value in entries.items() if isinstance(entries, Mapping) else ():
            if name == "step" and (isinstance(value, (int, float)) or _is_scalar(value)):
                counters[parameter] = float(value)
            elif isinstance(value, Tensor):
                moments[f"{parameter}/{name}"] = value
    settings = tuple(
        plain_state(group, without=("params", "param_names", "parameters")) | {"parameters": list(group["parameters"])}
        for group in groups
    )
    return moments, counters, settings


def random_digests(state: RandomState) -> dict[str, str]:
    """One short digest per generator, equal for equal states from any source."""
    found = {"torch": bytes_digest(state.torch), "python": python_digest(state.python)}
    if state.numpy is not None and state.numpy.get("bit_generator") == "MT19937":
        inner = state.numpy["state"]
        found["numpy"] = numpy_digest(inner["key"], inner["pos"])
    return found | {f"cuda:{number}": bytes_digest(cuda) for number, cuda in enumerate(state.cuda)}


def bytes_digest(state: Tensor) -> str:
    """Digest of a torch generator's state."""
    return hashlib.sha256(state.cpu().contiguous().numpy().tobytes()).hexdigest()[:16]


def python_digest(state: Any) -> str:
    """Digest of the result of ``random.getstate()``, even after a round trip that turned tuples into lists."""
    words = ",".join(map(str, state[1]))
    return hashlib.sha256(f"{words};{state[2]}".encode()).hexdigest()[:16]


def numpy_digest(key: Any, position: Any) -> str:
    """Digest of NumPy's global generator."""
    words = np.asarray(key).astype("<u4").tobytes()
    return hashlib.sha256(words + str(int(position)).encode()).hexdigest()[:16]


def card(
    *,
    source: str,
    step: int,
    roots: Iterable[nn.Module],
    optimizer: torch.optim.Optimizer,
    names: Mapping[int, str],
    schedulers: Iterable[Any],
    scaler: Any,
    position: Mapping[str, Any],
) -> CheckpointContents:
    """The fingerprint of a live run's current state."""
    groups = [
        {**group, "parameters": [names.get(id(parameter), "?") for parameter in group["params"]]}
        for group in optimizer.param_groups
    ]
    state = {
        names.get(id(parameter), f"?{at}"): entries for at, (parameter, entries) in enumerate(optimizer.state.items())
    }
    moments, counters, settings = optimizer_parts(groups, state)
    return CheckpointContents(
        source=source,
        kind="run",
        step=step,
        weights=hold(saved_tensors(roots)),
        moments=hold(moments),
        counters=counters,
        settings=settings,
        scheduler=tuple(plain_state(vars(scheduler), without=SCHEDULER_UNTOLD) for scheduler in schedulers),
        scaler=plain_state(scaler.state_dict()) if scaler is not None else None,
        random=random_digests(RandomState.take()),
        position=dict(position),
        named=not any(name.startswith("parameter.") for name in names.values()),
    )


def saved_tensors(roots: Iterable[nn.Module]) -> dict[str, Tensor]:
    """Parameters and persistent buffers by plain name: the result of ``state_dict``, without calling it."""
    found: dict[str, Tensor] = {}
    several = list(roots)
    for root in several:
        lead = f"{type(root).__name__}." if len(several) > 1 else ""
        for path, module in named_places(root):
            transient = TRANSIENT_BUFFERS.of(module)
            kept = {name: buffer for name, buffer in BUFFERS.of(module).items() if name not in transient}
            for name, tensor in (*PARAMETERS.of(module).items(), *kept.items()):
                if tensor is not None and _is_plain(tensor):
                    found[lead + plain_name(f"{path}.{name}" if path else name)] = tensor
    return found


def _is_scalar(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1


def _is_plain(tensor: Tensor) -> bool:
    return tensor.device.type != "meta" and tensor.layout == torch.strided and not tensor.is_quantized


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _look(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Two integers (fits bfloat16, fits float16) and the sum of squares, on the device of the tensor."""
    with torch.no_grad():
        flat = tensor.contiguous().reshape(-1)
        square = torch.zeros(1, dtype=torch.float64, device=flat.device)
        chunk_bytes = HOST_CHUNK_BYTES if flat.device.type == "cpu" else CHUNK_BYTES
        length = max(1, chunk_bytes // flat.element_size())
        for start in range(0, flat.numel(), length):
            square += _square(flat[start : start + length])
        return _fits(flat[:SAMPLE_MAX]), square


def _square(chunk: Tensor) -> Tensor:
    if chunk.is_complex():
        chunk = torch.view_as_real(chunk)
    return chunk.to(torch.float64).square().sum()


def _fits(sample: Tensor) -> Tensor:
    """Whether all values of a long format fit a shorter one; values that are all equal do not count as evidence."""
    verdict = torch.zeros(2, dtype=torch.int64, device=sample.device)
    if sample.dtype in (torch.float32, torch.float64) and sample.numel() > 1:
        varied = (sample != sample[0]).any()
        for index, dtype in enumerate((torch.bfloat16, torch.float16)):
            verdict[index] = (sample.to(dtype).to(sample.dtype) == sample).all() & varied
    return verdict


def _nonfinite(tensor: Tensor) -> int:
    flat = tensor.detach().reshape(-1)
    length = max(1, CHUNK_BYTES // flat.element_size())
    chunks = (flat[start : start + length] for start in range(0, flat.numel(), length))
    return sum(int((~torch.isfinite(chunk)).sum()) for chunk in chunks)


def _fetch(rows: Sequence[Tensor], dtype: torch.dtype) -> list[list[Any]]:
    """All rows as plain numbers, with one transfer per device."""
    by_device: dict[torch.device, list[int]] = {}
    for at, row in enumerate(rows):
        by_device.setdefault(row.device, []).append(at)
    found: dict[int, list[Any]] = {}
    for positions in by_device.values():
        fetched = torch.stack([rows[at].to(dtype) for at in positions]).tolist()
        found |= dict(zip(positions, fetched, strict=True))
    return [found[at] for at in range(len(rows))]
