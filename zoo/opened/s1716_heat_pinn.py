# expect: sick
# symptom: the loss falls and then stays at a plateau; the solution is wrong (large relative error against the exact one)
# axis: model
# cause: ReLU network in a PINN: its second derivative is zero almost everywhere, so u_xx in the PDE residual is always 0 and the diffusion term is not learned
# says: relu\b.{0,160}(second|2nd|deriv|u_?xx|piecewise|smooth|curvature|laplac|twice|hessian|pinn|residual)|(second|2nd)[- ](order )?deriv\w+.{0,120}(zero|vanish|relu|0\b|identically)|piecewise[- ]linear|u_?xx.{0,60}(zero|vanish|0\b)|activation.{0,80}(smooth|differentiable|tanh|sine|silu|gelu)
# onset_step: 0
# fix: use a smooth activation (tanh, sine, SiLU)
# mended: tanh instead of ReLU
import math
import os
import time

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(4)

ALPHA, STEPS = 0.05, 750
N_COL, N_IC, N_BC = 256, 64, 48


def initial(x):
    return torch.sin(math.pi * x) + 0.5 * torch.sin(3 * math.pi * x)


def exact(x, t):
    return torch.exp(-ALPHA * math.pi**2 * t) * torch.sin(math.pi * x) + 0.5 * torch.exp(
        -9 * ALPHA * math.pi**2 * t
    ) * torch.sin(3 * math.pi * x)


class Field(nn.Module):
    """u(x, t) for the 1-d heat equation u_t = alpha * u_xx on [0, 1] x [0, 1]"""

    def __init__(self, width=48, depth=3):
        super().__init__()
        act = nn.Tanh if MENDED else nn.ReLU
        layers, d = [], 2
        for _ in range(depth):
            layers += [nn.Linear(d, width), act()]
            d = width
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))
        for m in self.net:
            if isinstance(m, nn.Linear):
                nn.init.xavier_normal_(m.weight, gain=1.4)
                nn.init.uniform_(m.bias, -0.3, 0.3)

    def forward(self, x, t):
        return self.net(torch.cat([2 * x - 1, 2 * t - 1], 1))


def grad(out, inp):
    (g,) = torch.autograd.grad(out.sum(), inp, create_graph=True, materialize_grads=True)
    return g


class Trainer:
    def __init__(self, model):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=2e-3)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, STEPS, eta_min=1e-5)

    def residual(self):
        x = torch.rand(N_COL, 1, requires_grad=True)
        t = torch.rand(N_COL, 1, requires_grad=True)
        u = self.model(x, t)
        u_t, u_x = grad(u, t), grad(u, x)
        return u_t - ALPHA * grad(u_x, x)

    def losses(self):
        pde = self.residual().pow(2).mean()
        x = torch.rand(N_IC, 1)
        ic = (self.model(x, torch.zeros_like(x)) - initial(x)).pow(2).mean()
        t = torch.rand(N_BC, 1)
        bc = self.model(torch.zeros_like(t), t).pow(2).mean() + self.model(torch.ones_like(t), t).pow(2).mean()
        return pde, ic, bc

    def step(self):
        pde, ic, bc = self.losses()
        loss = pde + 10 * ic + 10 * bc
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.sched.step()
        return loss.item(), pde.item(), ic.item(), bc.item()


@torch.no_grad()
def relative_error(model):
    g = torch.linspace(0, 1, 51)
    x, t = [a.reshape(-1, 1) for a in torch.meshgrid(g, g, indexing="ij")]
    ref = exact(x, t)
    return ((model(x, t) - ref).norm() / ref.norm()).item()


if __name__ == "__main__":
    model = Field()
    trainer = Trainer(model)
    t0 = time.time()
    for step in range(STEPS):
        total, pde, ic, bc = trainer.step()
        if step % 25 == 0 or step == STEPS - 1:
            print(f"step {step:4d} loss {total:.5f} pde {pde:.5f} ic {ic:.5f} bc {bc:.5f}")
        if step % 150 == 149:
            print(f"== step {step} relative L2 error {relative_error(model):.4f} ({time.time() - t0:.1f}s)")
