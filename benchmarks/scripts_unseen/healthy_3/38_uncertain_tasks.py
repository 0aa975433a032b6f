# expect: healthy
# fault: negative loss, several losses of different sizes
# note: multi-task with learnt log variances (Kendall): the total goes below 0 as the variances shrink.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(63)


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.box, self.depth, self.kind = nn.Linear(64, 4), nn.Linear(64, 1), nn.Linear(64, 5)
        self.log_var = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        h = self.trunk(x)
        return self.box(h), self.depth(h).squeeze(1), self.kind(h)


A, B, Cc = torch.randn(12, 4) / 3, torch.randn(12) / 3, torch.randn(12, 5)
model = MultiTask()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(220):
    x = torch.randn(64, 12)
    box, depth, kind = model(x)
    losses = torch.stack(
        [
            nn.functional.smooth_l1_loss(box, torch.tanh(x @ A)),
            (depth - x @ B).pow(2).mean(),
            nn.functional.cross_entropy(kind, (x @ Cc).argmax(1)),
        ]
    )
    total = (torch.exp(-model.log_var) * losses + model.log_var).sum()
    opt.zero_grad()
    total.backward()
    opt.step()
    if step % 20 == 0:
        print(step, f"total {total.item():.3f}", [round(v, 4) for v in losses.tolist()])
