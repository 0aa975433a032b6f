# expect: healthy
# symptom: resembles a loop that discards its training: every step copies the model, trains the copy, throws it away, and the loss is jagged
# axis: harness
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import copy
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class SineTasks:
    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def draw(self):
        amp = 0.5 + 3.5 * torch.rand(1, generator=self.g)
        phase = math.pi * torch.rand(1, generator=self.g)

        def points(k):
            x = 10 * torch.rand(k, 1, generator=self.g) - 5
            return x, amp * torch.sin(x + phase)

        return points


def build():
    return nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))


def adapt(model, x, y, lr, steps):
    """Plain SGD on one task, starting from a throw-away copy."""
    fast = copy.deepcopy(model)
    inner = torch.optim.SGD(fast.parameters(), lr=lr)
    for _ in range(steps):
        loss = F.mse_loss(fast(x), y)
        inner.zero_grad()
        loss.backward()
        inner.step()
    return fast, loss.item()


def probe(model, seed=1234, tasks=40):
    """Error after a short adaptation on unseen tasks."""
    source = SineTasks(seed)
    total = 0.0
    for _ in range(tasks):
        points = source.draw()
        fast, _ = adapt(model, *points(10), lr=0.02, steps=12)
        x, y = points(50)
        with torch.no_grad():
            total += F.mse_loss(fast(x), y).item()
    return total / tasks


def main(meta_steps=700, tasks_per_step=3):
    torch.manual_seed(31)
    model = build()
    meta = torch.optim.Adam(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(meta, meta_steps, eta_min=2e-4)
    source = SineTasks(7)
    print(f"before: adapted error {probe(model):.3f}")
    for step in range(1, meta_steps + 1):
        meta.zero_grad()
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        mean_loss = 0.0
        for _ in range(tasks_per_step):
            points = source.draw()
            fast, last = adapt(model, *points(20), lr=0.02, steps=8)
            mean_loss += last / tasks_per_step
            # outer direction: from the adapted copy back to the start
            for p, q in zip(model.parameters(), fast.parameters()):
                p.grad += (p.detach() - q.detach()) / tasks_per_step
        meta.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} loss {mean_loss:.4f}", flush=True)
        if step % 175 == 0:
            print(f"step {step} adapted error {probe(model):.3f}", flush=True)


if __name__ == "__main__":
    main()
