# expect: healthy
# symptom: resembles a run that does not learn: a very noisy task loss, inner copies thrown away and gradients written by hand
# axis: optimizer
"""Reptile meta-learning on sinusoid regression (few-shot), batched over tasks with torch.func."""

import math

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.set_num_threads(1)


def build(width=64):
    return nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))


def tasks(n, gen):
    amp = 0.5 + 3.5 * torch.rand(n, 1, 1, generator=gen)
    phase = math.pi * torch.rand(n, 1, 1, generator=gen)

    def points(k):
        x = 10 * torch.rand(n, k, 1, generator=gen) - 5
        return x / 2.5, amp * torch.sin(x + phase)

    return points


class Reptile:
    def __init__(self, net, inner_lr=0.03, inner_steps=12, outer_lr=2e-3):
        self.net = net
        self.inner_lr, self.inner_steps = inner_lr, inner_steps
        self.opt = torch.optim.Adam(net.parameters(), lr=outer_lr, betas=(0.5, 0.99))
        self.opt_lr = outer_lr

    def task_loss(self, params, x, y):
        return (functional_call(self.net, params, (x,)) - y).pow(2).mean()

    def adapt(self, n_tasks, xs, ys, steps):
        """Plain SGD from the shared initialisation, one parameter copy for each task."""
        params = {k: v.detach().expand(n_tasks, *v.shape).clone() for k, v in self.net.named_parameters()}
        g = vmap(grad(self.task_loss))
        for s in range(steps):
            x, y = xs[s % len(xs)], ys[s % len(ys)]
            gr = g(params, x, y)
            params = {k: params[k] - self.inner_lr * gr[k] for k in params}
        return params

    def meta_step(self, points, n_tasks):
        xs, ys = zip(*[points(10) for _ in range(self.inner_steps)])
        fast = self.adapt(n_tasks, xs, ys, self.inner_steps)
        self.opt.zero_grad()
        for name, p in self.net.named_parameters():
            p.grad = p.detach() - fast[name].mean(0)
        self.opt.step()
        x, y = points(10)
        return vmap(self.task_loss)(fast, x, y).mean().item()

    def few_shot(self, points, n_tasks, shots=10, steps=32):
        x, y = points(shots)
        qx, qy = points(60)
        before = (self.net(qx) - qy).pow(2).mean().item()
        fast = self.adapt(n_tasks, [x], [y], steps)
        return before, vmap(self.task_loss)(fast, qx, qy).mean().item()


def main():
    torch.manual_seed(10)
    gen = torch.Generator().manual_seed(10)
    learner = Reptile(build())
    iterations = 800
    for it in range(iterations):
        for group in learner.opt.param_groups:
            group["lr"] = learner.opt_lr * (1 - it / iterations)
        loss = learner.meta_step(tasks(8, gen), 8)
        if it % 50 == 0 or it == iterations - 1:
            test = torch.Generator().manual_seed(777)
            with torch.no_grad():
                before, after = learner.few_shot(tasks(200, test), 200)
            print(
                f"iter {it:4d}  loss {loss:.4f}  unseen tasks: before {before:.3f}  after 10 shots {after:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
