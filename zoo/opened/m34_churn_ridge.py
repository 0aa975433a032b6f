# expect: healthy
# symptom: resembles the fault that a term is summed over the whole batch and added to the value of each row, so it counts as often as there are rows
# axis: none
# mended: none
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES = 20
WEIGHT_PENALTY = 1e-4


def customers(n, w):
    x = torch.randn(n, FEATURES)
    x[:, 5:8] = (x[:, 5:8] > 0).float()
    score = x @ w + 0.5 * x[:, 0] * x[:, 1]
    y = torch.bernoulli(torch.sigmoid(score))
    cost = 1.0 + 2.0 * torch.rand(n)  # customers differ in value
    return x, y, cost


class ChurnMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(FEATURES, 32),
            nn.ReLU(),
            nn.Linear(32, 16),
            nn.ReLU(),
            nn.Linear(16, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)

    def squared_norm(self):
        return sum(p.pow(2).sum() for name, p in self.named_parameters() if "weight" in name)


def train_epoch(model, loader, opt):
    model.train()
    total = 0.0
    for x, y, cost in loader:
        per_row = nn.functional.binary_cross_entropy_with_logits(model(x), y, reduction="none")
        penalty = WEIGHT_PENALTY * model.squared_norm()
        loss = (cost * per_row + penalty).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(loader)


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        return ((model(x) > 0).float() == y).float().mean().item()


def main():
    torch.manual_seed(47)
    w = torch.randn(FEATURES)
    train = TensorDataset(*customers(1500, w))
    x_val, y_val, _ = customers(500, w)
    loader = DataLoader(train, batch_size=100, shuffle=True)
    model = ChurnMLP()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(4):
        loss = train_epoch(model, loader, opt)
        print(f"epoch {epoch} loss {loss:.4f} acc {evaluate(model, x_val, y_val):.3f}")


if __name__ == "__main__":
    main()
