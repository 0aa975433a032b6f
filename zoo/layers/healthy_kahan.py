"""Healthy: weights in bfloat16 alone at a small rate, and an optimizer that keeps what rounding leaves out of them."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS = 64
follows = torch.randn(WORDS, WORDS).mul(2).softmax(-1)
model = nn.Sequential(
    nn.Embedding(WORDS, 64), nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, WORDS)
).bfloat16()


class KahanAdam(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for one in group["params"]:
                state = self.state[one]
                if not state:
                    state["mean"], state["square"] = torch.zeros_like(one), torch.zeros_like(one, dtype=torch.float32)
                    state["rest"], state["count"] = torch.zeros_like(one), 0
                state["count"] += 1
                state["mean"].lerp_(one.grad, 0.1)
                state["square"].lerp_(one.grad.float().square(), 0.001)
                mean = state["mean"].float() / (1 - 0.9 ** state["count"])
                root = (state["square"] / (1 - 0.999 ** state["count"])).sqrt() + 1e-8
                whole = (state["rest"].float() - group["lr"] * mean / root).to(one.dtype)
                before = one.clone()
                one.add_(whole)
                state["rest"].copy_(whole - (one - before))


optimizer = KahanAdam(model.parameters(), lr=1e-4)

for step in range(1, 401):
    words = torch.randint(WORDS, (128,))
    targets = torch.multinomial(follows[words], 1).squeeze(1)
    loss = F.cross_entropy(model(words).float(), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
