"""What measuring tensors costs by itself: milliseconds for each part, on the CPU, for a GPT's parameters with AdamW.

No model runs here, so the numbers are those of the measurement alone, with everything out of the cache as it is after a
real step. What it costs inside of a run is told by ``overhead.py``. The parts take turns, a round of all of them at a
time, so that whatever else the machine does hits all alike; the smallest and the middle of the rounds are shown.

    python benchmarks/tensor_statistics.py            # about two minutes
    python benchmarks/tensor_statistics.py --quick    # a smoke test: small tensors, few rounds, numbers without meaning
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from datetime import date

import torch
from torch import Tensor, nn

from steadytrain.capture.tensors.statistics import TensorWatch, fetch, l2_norms, log2_histogram

FLUSH_ELEMENTS = 1 << 24  # 64 MiB, read before each part: what was measured last is out of the cache

Part = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smoke test")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    arguments = parser.parse_args()
    shapes = gpt(layers=1, width=64, vocabulary=256) if arguments.quick else gpt(layers=12, width=448, vocabulary=4096)
    rounds = 2 if arguments.quick else arguments.rounds
    bench = Bench(shapes, getattr(torch, arguments.dtype))
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}")
    print(f"{len(shapes)} tensors, {bench.count / 1e6:.1f} M parameters in {arguments.dtype}, AdamW, {rounds} rounds\n")
    print("| ms, smallest / middle of the rounds | 1 thread | 2 threads |\n|---|---:|---:|")
    columns = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        columns.append(bench.run(rounds))
    for name in columns[0]:
        cells = [f"{times[0]:.1f} / {times[len(times) // 2]:.1f}" for times in (column[name] for column in columns)]
        print(f"| {name} | {' | '.join(cells)} |")
    held = bench.watch.held_bytes
    print(
        f"\nheld between readings: {held / 1e6:.1f} MB, {held / bench.state_bytes:.1%} of parameters and AdamW's state"
    )


def gpt(*, layers: int, width: int, vocabulary: int) -> list[tuple[int, ...]]:
    """Shapes of the parameters of a GPT with biases."""
    block: list[tuple[int, ...]] = [
        *[(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,)],
        *[(width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,)],
    ]
    return [(vocabulary, width), (1024, width), *block * layers, (width,), (width,)]


class Bench:
    """Parameters with gradients and an optimizer that has stepped, and the parts that are timed on them."""

    def __init__(self, shapes: list[tuple[int, ...]], dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        self.parameters = [nn.Parameter((torch.randn(s, generator=generator) * 0.02).to(dtype)) for s in shapes]
        for parameter in self.parameters:
            parameter.grad = (torch.randn(parameter.shape, generator=generator) * 1e-3).to(dtype)
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4)
        self.optimizer.step()
        self.names = [f"p{at}" for at in range(len(shapes))]
        self.watch = TensorWatch(self.names, self.parameters)
        self.count = sum(parameter.numel() for parameter in self.parameters)
        self._flush = torch.zeros(FLUSH_ELEMENTS)

    @property
    def state_bytes(self) -> int:
        return 3 * sum(parameter.nbytes for parameter in self.parameters)

    def run(self, rounds: int) -> dict[str, list[float]]:
        """Milliseconds of each part, sorted."""
        parts = self.parts()
        times: dict[str, list[float]] = {name: [] for name in parts}
        for _ in range(rounds + 1):
            for name, part in parts.items():
                self._flush.add_(1)
                began = time.perf_counter()
                part()
                times[name].append((time.perf_counter() - began) * 1e3)
        return {name: sorted(of_part[1:]) for name, of_part in times.items()}  # the first round warms up

    def parts(self) -> dict[str, Part]:
        return {
            "L2 norm of every gradient, fetched (every step)": lambda: fetch(l2_norms(self._gradients())),
            "before the update": self.watch.before_update,
            "after the update": self._after,
            "before and after": self._both,
            "before and after, only gradients read whole": lambda: self._both(()),
            "histograms of gradients and weights": self._histograms,
            "for comparison: norm, aminmax, sum by torch, of all four kinds": lambda: self._by_torch(finite=False),
            "for comparison: the same and isfinite": lambda: self._by_torch(finite=True),
        }

    def _after(self) -> object:
        return self.watch.after_update([self.optimizer]).result()

    def _both(self, kinds: tuple[str, ...] = ("weight", "first_moment", "second_moment")) -> object:
        self.watch.before_update()
        return self.watch.after_update([self.optimizer], kinds=kinds).result()

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def _histograms(self) -> object:
        gradients = zip(self.names, self._gradients(), strict=True)
        return log2_histogram([*gradients, *zip(self.names, self.parameters, strict=True)]).result()

    @torch.no_grad()
    def _by_torch(self, *, finite: bool) -> object:
        states = self.optimizer.state.values()
        moments = [state[name] for state in states for name in ("exp_avg", "exp_avg_sq")]
        found: list[object] = []
        for tensor in [*self.parameters, *self._gradients(), *moments]:
            found += [torch.linalg.vector_norm(tensor), *torch.aminmax(tensor), tensor.sum()]
            if finite:
                found.append(torch.isfinite(tensor).all())
        return found


if __name__ == "__main__":
    main()
