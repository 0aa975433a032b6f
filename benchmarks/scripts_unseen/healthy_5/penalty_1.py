# expect: healthy
# fault: none, autograd.grad here gives only a step direction for the inputs and a balance weight for two losses, both meant as constants, so create_graph is not wanted
# onset_step: none
# says: (?!)
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(23)


class TwoHead(nn.Module):
    def __init__(self, d=16, h=96, classes=4):
        super().__init__()
        self.l1 = nn.Linear(d, h)
        self.l2 = nn.Linear(h, h)
        self.cls = nn.Linear(h, classes)
        self.rec = nn.Linear(h, d)

    def forward(self, x):
        z = torch.relu(self.l2(torch.relu(self.l1(x))))
        return self.cls(z), self.rec(z)


def nudged(model, x, y, eps):
    x_in = x.clone().requires_grad_(True)
    logits, _ = model(x_in)
    loss = F.cross_entropy(logits, y)
    (grad,) = torch.autograd.grad(loss, x_in)
    return (x_in + eps * grad.sign()).detach()


def balance(main_loss, side_loss, weight):
    g_main = torch.autograd.grad(main_loss, weight, retain_graph=True)[0]
    g_side = torch.autograd.grad(side_loss, weight, retain_graph=True)[0]
    return (g_main.norm() / (g_side.norm() + 1e-4)).clamp(0.0, 10.0)


def data(n, gen):
    centres = torch.randn(4, 16, generator=torch.Generator().manual_seed(99)) * 1.2
    y = torch.randint(0, 4, (n,), generator=gen)
    return centres[y] + torch.randn(n, 16, generator=gen), y


gen = torch.Generator().manual_seed(23)
X, Y = data(2000, gen)
Xv, Yv = data(400, gen)
model = TwoHead()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 261):
    idx = torch.randint(0, len(X), (96,), generator=gen)
    x, y = X[idx], Y[idx]
    x_adv = nudged(model, x, y, eps=0.1)
    logits, rec = model(torch.cat([x, x_adv]))
    cls_loss = F.cross_entropy(logits, torch.cat([y, y]))
    rec_loss = F.mse_loss(rec, torch.cat([x, x]))
    penalty = balance(cls_loss, rec_loss, model.l2.weight)
    loss = cls_loss + 0.3 * penalty * rec_loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        with torch.no_grad():
            clean = (model(Xv)[0].argmax(1) == Yv).float().mean().item()
        moved = nudged(model, Xv, Yv, 0.1)
        with torch.no_grad():
            rob = (model(moved)[0].argmax(1) == Yv).float().mean().item()
        print(f"{step} loss {loss.item():.3f} weight {penalty.item():.3f} clean {clean:.3f} moved {rob:.3f}")
