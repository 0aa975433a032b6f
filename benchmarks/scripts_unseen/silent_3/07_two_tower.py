# expect: sick
# fault: zero_grad between backward and step
# onset_step: 0
# says: (?i)(zero_grad|gradients? .{0,40}(none|zero|cleared|missing|lost|wiped|empty)|no gradient|without (a )?gradient|parameters? .{0,30}(n.t|not|never) (move|change|mov)|never mov|unchanged|no update)
# note: zero_grad was put directly before step(), so every step sees no gradients and nothing ever changes.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(2)

USERS, ITEMS, K = 200, 150, 8
u_true, i_true = torch.randn(USERS, K), torch.randn(ITEMS, K)


class TwoTower(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.user = nn.Sequential(nn.Embedding(USERS, d), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))
        self.item = nn.Sequential(nn.Embedding(ITEMS, d), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1)


def sample(n):
    u, i = torch.randint(0, USERS, (n,)), torch.randint(0, ITEMS, (n,))
    click = ((u_true[u] * i_true[i]).sum(-1) > 0).float()
    return u, i, click


def train(model, optimizer, steps):
    bce = nn.BCEWithLogitsLoss()
    for step in range(steps):
        u, i, click = sample(256)
        loss = bce(model(u, i), click)
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
        if step % 25 == 0:
            print("step", step, "loss", f"{loss.item():.4f}")


model = TwoTower()
train(model, torch.optim.Adam(model.parameters(), lr=1e-2), 200)
u, i, click = sample(4000)
print("final acc", ((model(u, i) > 0).float() == click).float().mean().item())
