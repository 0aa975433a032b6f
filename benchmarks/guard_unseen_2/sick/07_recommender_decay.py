# Ratings from embeddings, Adam. Fault: from step 610 to 689 a weight decay meant for another group lands on the embeddings.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(17)
taste, trait = torch.randn(120, 6, generator=fixed) * 0.7, torch.randn(150, 6, generator=fixed) * 0.7


def ratings(n, g=None):
    u = torch.randint(0, 120, (n,), generator=g)
    i = torch.randint(0, 150, (n,), generator=g)
    return u, i, 3 + (taste[u] * trait[i]).sum(1) + torch.randn(n, generator=g) * 0.8


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(120, 12), nn.Embedding(150, 12)
        nn.init.normal_(self.user.weight, std=0.3)
        nn.init.normal_(self.item.weight, std=0.3)
        self.mlp = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, u, i):
        a, b = self.user(u), self.item(i)
        return (a * b).sum(1) + self.mlp(torch.cat([a, b], 1))[:, 0]


test = ratings(4000, fixed)
torch.manual_seed(args.seed)
model = Recommender()
opt = torch.optim.Adam(
    [{"params": [model.user.weight, model.item.weight]}, {"params": model.mlp.parameters(), "weight_decay": 1e-4}],
    lr=1e-2,
)
for step in range(700):
    opt.param_groups[0]["weight_decay"] = 5.0 if 610 <= step < 690 and not args.twin else 0.0
    u, i, y = ratings(512)
    loss = nn.functional.mse_loss(model(u, i), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"step {step}: {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(*test[:2]), test[2]).item())
