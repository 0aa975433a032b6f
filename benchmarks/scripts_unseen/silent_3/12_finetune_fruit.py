# expect: sick
# fault: head replaced after the optimizer was made
# onset_step: 0
# says: (?i)((not|missing|absent|outside|no|any|old).{0,60}optimi[sz]er|optimi[sz]er .{0,60}(miss|lack|not|without|old|before|stale|other)|replaced|never (mov|train|updat)|not train)
# note: build_optimizer() runs before the 10-way head is exchanged for a 4-way one; the new head is in no optimizer and stays random.
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Fruit(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        proto = torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(99))
        self.y = torch.randint(0, 4, (n,), generator=g)
        self.x = proto[self.y] * 0.5 + torch.randn(n, 3, 12, 12, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 12, 3, 2, 1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, 2, 1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.fc = nn.Linear(24, 10)

    def forward(self, x):
        return self.fc(self.features(x))


def build_optimizer(model):
    slow = {"params": model.features.parameters(), "lr": 1e-4}
    fast = {"params": model.fc.parameters(), "lr": 1e-2}
    return torch.optim.AdamW([slow, fast])


def run():
    torch.manual_seed(1)
    model = Backbone()
    optimizer = build_optimizer(model)
    model.fc = nn.Linear(24, 4)
    train = DataLoader(Fruit(640, 0), batch_size=32, shuffle=True)
    test = Fruit(200, 1)
    for epoch in range(6):
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            acc = (model(test.x).argmax(1) == test.y).float().mean().item()
        print(f"epoch {epoch} loss {loss.item():.4f} final acc {acc:.3f}")


run()
