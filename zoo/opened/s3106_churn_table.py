# expect: sick
# symptom: a good best validation is reported, but the restored model tests like the last, overfit epoch
# axis: harness
# cause: the best checkpoint holds references to the live parameter tensors, so later updates overwrite it
# says: (?=.*(best|checkpoint|snapshot|state.?dict))(?=.*(alias|refer|cop[iy]|clone|detach|share|live|overwr))
# onset_step: 64
# fix: clone the tensors when the best state is recorded
# mended: the script applies that change if the environment has MENDED=1
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(41)
MENDED = os.environ.get("MENDED") == "1"

REGIONS, PLANS, NUMERIC = 8, 5, 20


class ChurnTable(Dataset):
    """Customers with numeric usage columns, a region and a plan; churn labels come from a noisy call centre."""

    def __init__(self, n, seed, noise):
        g = torch.Generator().manual_seed(seed)
        w = torch.randn(NUMERIC, generator=torch.Generator().manual_seed(100))
        self.num = torch.randn(n, NUMERIC, generator=g)
        self.region = torch.randint(0, REGIONS, (n,), generator=g)
        self.plan = torch.randint(0, PLANS, (n,), generator=g)
        score = self.num @ w + 0.6 * (self.region.float() - 3.5) - 0.8 * (self.plan.float() - 2)
        y = (score > 0).float()
        flip = torch.rand(n, generator=g) < noise
        self.y = torch.where(flip, 1 - y, y)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.num[i], self.region[i], self.plan[i], self.y[i]


class ChurnNet(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.region = nn.Embedding(REGIONS, 6)
        self.plan = nn.Embedding(PLANS, 4)
        self.body = nn.Sequential(
            nn.Linear(NUMERIC + 10, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, num, region, plan):
        x = torch.cat([num, self.region(region), self.plan(plan)], 1)
        return self.body(x).squeeze(1)


@torch.no_grad()
def score(model, table):
    model.eval()
    logit = model(table.num, table.region, table.plan)
    loss = F.binary_cross_entropy_with_logits(logit, table.y).item()
    acc = ((logit > 0).float() == table.y).float().mean().item()
    model.train()
    return loss, acc


def snapshot(model):
    keep = torch.clone if MENDED else torch.detach
    return {name: keep(t) for name, t in model.state_dict().items()}


def main():
    train, valid, test = ChurnTable(512, 1, 0.25), ChurnTable(500, 2, 0.0), ChurnTable(2000, 3, 0.0)
    loader = DataLoader(train, batch_size=32, shuffle=True)
    model = ChurnNet()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    best_loss, best_acc, best = float("inf"), 0.0, None
    step = 0
    for epoch in range(28):
        for num, region, plan, y in loader:
            loss = F.binary_cross_entropy_with_logits(model(num, region, plan), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 25 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            step += 1
        vloss, vacc = score(model, valid)
        if vloss < best_loss:
            best_loss, best_acc, best = vloss, vacc, snapshot(model)
        if epoch % 4 == 0:
            print(f"epoch {epoch} valid loss {vloss:.4f} accuracy {vacc:.3f}")
    print(f"best valid loss {best_loss:.4f} accuracy {best_acc:.3f}; restoring it")
    model.load_state_dict(best)
    tloss, tacc = score(model, test)
    print(f"final test loss {tloss:.4f} accuracy {tacc:.3f}")


if __name__ == "__main__":
    main()
