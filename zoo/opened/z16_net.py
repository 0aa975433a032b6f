# expect: healthy
# symptom: learned weights of losses, which look as if nothing held them
# axis: none
# mended: none
import torch
from torch import nn

torch.manual_seed(17)

TASKS = 3
W_true = [torch.randn(8, 1) * s for s in (0.4, 0.5, 0.7)]
DEPTHS = 3


def get_batch(n=64):
    x = torch.randn(n, 8)
    return x, [torch.tanh(x @ w) * s for w, s in zip(W_true, (1.0, 1.5, 2.0))]


class Net(nn.Module):
    """Shared layers; each task has an exit after every layer, weighed by a softmax."""

    def __init__(self, h=32):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8 if i == 0 else h, h) for i in range(DEPTHS))
        self.mix = nn.Parameter(torch.zeros(TASKS, DEPTHS))
        self.heads = nn.ModuleList(nn.ModuleList(nn.Linear(h, 1) for _ in range(DEPTHS)) for _ in range(TASKS))

    def forward(self, x):
        feats = []
        for layer in self.layers:
            x = torch.relu(layer(x))
            feats.append(x)
        return [[head(f) for head, f in zip(hs, feats)] for hs in self.heads]


net = Net()
task_w = torch.ones(TASKS, requires_grad=True)
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
opt_w = torch.optim.SGD([task_w], lr=0.01)
first = None

for step in range(1, 101):
    x, ys = get_batch()
    outs = net(x)
    alpha = net.mix.softmax(dim=1)
    per_task = []
    for t in range(TASKS):
        per_depth = torch.stack([nn.functional.mse_loss(o, ys[t]) for o in outs[t]])
        per_task.append((alpha[t] * per_depth).sum())
    losses = torch.stack(per_task)
    first = losses.detach() if first is None else first

    shared = net.layers[0].weight
    norms = torch.stack(
        [
            torch.autograd.grad(task_w[t] * losses[t], shared, retain_graph=True, create_graph=True)[0].norm()
            for t in range(TASKS)
        ]
    )
    rate = losses.detach() / first
    goal = (norms.mean() * (rate / rate.mean()) ** 0.5).detach()
    (g_w,) = torch.autograd.grad((norms - goal).abs().sum(), task_w, retain_graph=True)

    loss = (task_w.detach() * losses).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    task_w.grad = g_w
    opt_w.step()
    with torch.no_grad():
        task_w.clamp_(min=0.05)
        task_w.mul_(TASKS / task_w.sum())
    if step % 20 == 0:
        print(
            f"step {step} loss {loss.item():.4f} tasks {[round(v, 4) for v in losses.tolist()]} "
            f"w {[round(v, 3) for v in task_w.tolist()]}"
        )
