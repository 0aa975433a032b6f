"""What a look at a step costs on the CPU, in steps: a GPT of 30 M parameters with AdamW, forward to update.

Three ways take turns: the step as it is, under the tracer alone (what names the operation), and under all that
``steadytrain locate`` does in the last step of its replay (tracer, ladder, the same step in float64). Told is processor
time of the process, one thread, medians over the rounds and of the ratios within a round.

Run by ``make bench-locate``; about four minutes.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from steadytrain.tracing.second_looks import SecondLook
from steadytrain.tracing.tracer import OperationTracer

WIDTH, WORDS, HEADS, BLOCKS = 512, 8192, 8, 7
LIMIT_STEPS = 1.5
"""What the tracing pass may cost, in steps."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm_up = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        rows, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(rows, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, tokens, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm_up(x))))


class GPT(nn.Module):
    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(tokens, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.blocks(self.words(ids) + self.places.weight[: ids.shape[1]]))


class Case:
    """A model in the midst of its training, and the ways to make a step."""

    def __init__(self, rows: int, tokens: int) -> None:
        torch.manual_seed(0)
        self.model = GPT(tokens)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.ids = torch.randint(0, WORDS, (rows, tokens + 1))
        self.modules = {module: name for name, module in self.model.named_modules()}
        self.parameters = dict(self.model.named_parameters())

    def step(self, loss_seen: Callable[[Tensor], None] = lambda loss: None) -> None:
        """Forward, loss, backward, clipping."""
        self.optimizer.zero_grad()
        logits = self.model(self.ids[:, :-1])
        loss = functional.cross_entropy(logits.reshape(-1, WORDS), self.ids[:, 1:].reshape(-1))
        loss_seen(loss)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def traced(self) -> None:
        tracer = OperationTracer(modules=self.modules, parameters=self.parameters, method="benchmark")
        with tracer:
            self.step(tracer.mark_loss)
        assert tracer.finding().located is None

    def looked_at(self) -> None:
        second = SecondLook(self.modules, self.parameters, step=1)
        tracer = OperationTracer(
            modules=self.modules, parameters=self.parameters, method="benchmark", observer=second.shadows
        )

        def seen(loss: Tensor) -> None:
            tracer.mark_loss(loss)
            second.loss_seen(loss)

        second.begin()
        with tracer:
            self.step(seen)
        second.end()
        assert second.opinion(tracer.finding()).verdict == "both-finite"
        second.shadows.close()

    def whole(self) -> None:
        """A step with its update, which is what the passes are measured in."""
        self.step()
        self.optimizer.step()


def seconds(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, nargs="*", default=[2, 8], help="sequences of 128 tokens in a batch")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {platform.machine()}, one thread, load {os.getloadavg()[0]:.1f}")
    for rows in arguments.rows:
        case = Case(rows, 128)
        count = sum(parameter.numel() for parameter in case.parameters.values())
        ways = {"a step": case.whole, "tracing pass": case.traced, "whole look": case.looked_at}
        for work in ways.values():
            work()
        rounds = [{name: seconds(work) for name, work in ways.items()} for _ in range(arguments.rounds)]
        print(f"\n{count / 1e6:.1f} M parameters, {rows * 128} tokens, {arguments.rounds} rounds")
        for name in ways:
            median = statistics.median(one[name] for one in rounds)
            ratio = statistics.median(one[name] / one["a step"] for one in rounds)
            limit = f"   (at most {LIMIT_STEPS})" if name == "tracing pass" else ""
            print(f"{name:<14} {median:8.3f} s {ratio:8.2f} steps{limit}")


if __name__ == "__main__":
    main()
