# EXPECT: sick
# FAULT: scheduler made but never stepped
# ONSET: 1
# SAYS: schedule|scheduler|learning rate
import math
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Forecaster(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rnn = nn.LSTM(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1])


def build_series(n, length):
    phase = torch.rand(n, 1) * 2 * math.pi
    freq = 0.2 + 0.6 * torch.rand(n, 1)
    t = torch.arange(length + 1).float()
    s = torch.sin(freq * t + phase)
    return s[:, :-1].unsqueeze(-1), s[:, -1:]


def train():
    torch.manual_seed(11)
    X, Y = build_series(1600, 20)
    loader = DataLoader(TensorDataset(X, Y), batch_size=32, shuffle=True)
    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    epochs = 2
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.01, total_steps=epochs * len(loader))
    loss_fn = nn.MSELoss()
    seen = 0
    for epoch in range(epochs):
        total = 0.0
        for xb, yb in loader:
            opt.zero_grad(set_to_none=True)
            pred = model(xb)
            loss = loss_fn(pred, yb)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            seen += 1
            total += loss.item()
            if seen % 25 == 0:
                print(f"[{seen:4d}] loss={loss.item():.5f} lr={opt.param_groups[0]['lr']:.6f}")
        print("epoch", epoch, "mean", total / len(loader))


if __name__ == "__main__":
    train()
