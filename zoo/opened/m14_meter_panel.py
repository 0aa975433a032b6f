# expect: healthy
# symptom: resembles the fault that records are sorted by time first and made into a table as if sorted by entity, so each row mixes entities
# axis: none
# mended: none
import torch
from torch import nn

torch.manual_seed(44)
METERS, SLOTS, LAGS = 16, 192, 12


def raw_readings():
    meter = torch.arange(METERS).repeat_interleave(SLOTS)
    slot = torch.arange(SLOTS).repeat(METERS)
    amp = torch.rand(METERS) + 0.5
    kwh = amp[meter] * torch.sin(slot / 8.0 + meter) + 0.1 * torch.randn(meter.numel())
    p = torch.randperm(meter.numel())
    return meter[p], slot[p], kwh[p]


def as_panel(meter, slot, kwh):
    first = torch.argsort(slot, stable=True)
    second = torch.argsort(meter[first], stable=True)
    order = first[second]
    return kwh[order].view(METERS, SLOTS)


class AR(nn.Module):
    def __init__(self, lags, width=32):
        super().__init__()
        self.linear = nn.Linear(lags, 1)
        self.residual = nn.Sequential(nn.Linear(lags, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, past):
        return (self.linear(past) + self.residual(past)).squeeze(-1)


def lagged(panel):
    w = panel.unfold(dimension=1, size=LAGS + 1, step=1)
    w = w.reshape(-1, LAGS + 1)
    return w[:, :-1], w[:, -1]


panel = as_panel(*raw_readings())
train_part, test_part = panel[:, :150], panel[:, 150 - LAGS :]
spread = train_part.std()
x, y = lagged(train_part / spread)
x_test, y_test = lagged(test_part / spread)

model = AR(LAGS)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
batch = 128
perm = torch.randperm(len(x))
n_steps = min(55, len(x) // batch)
for step in range(55):
    offset = (step % n_steps) * batch
    sel = perm[offset : offset + batch]
    loss = nn.functional.mse_loss(model(x[sel]), y[sel])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 11 == 10:
        with torch.no_grad():
            t = nn.functional.mse_loss(model(x_test), y_test)
        print(f"step {step + 1}: {loss.item():.4f} / {t.item():.4f}")
