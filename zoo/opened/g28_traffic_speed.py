# expect: sick
# symptom: the loss stops falling after about 60 steps at a level that the same network passes easily with a constant rate
# axis: optimizer
# cause: ReduceLROnPlateau (patience counted in epochs) is stepped with the noisy loss of each batch, so the learning rate collapses within the first epoch
# says: plateau|schedul.*(batch|iteration|each step|too often)|learning rate.*(collaps|vanish|near zero|tiny|drops?|decay|shr)|per.?batch
# onset_step: 60
# fix: step the scheduler once per epoch with the validation loss
# mended: stepped once per epoch with the validation loss
import os
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

torch.set_num_threads(1)
torch.manual_seed(45)
MENDED = os.environ.get("MENDED") == "1"
SENSORS, HISTORY = 12, 10


class SpeedSeries:
    def __init__(self, n):
        coupling = torch.randn(SENSORS, SENSORS, generator=torch.Generator().manual_seed(1)) / SENSORS**0.5
        v = torch.randn(n, SENSORS)
        frames = [v]
        for _ in range(HISTORY):
            v = 0.9 * torch.tanh(1.4 * v @ coupling) + 0.4 * v + 0.25 * torch.randn(n, SENSORS)
            frames.append(v)
        self.x, self.y = torch.stack(frames[:-1], 1), frames[-1]

    def batches(self, size):
        for idx in torch.randperm(len(self.x)).split(size):
            yield self.x[idx], self.y[idx]


class SpeedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(SENSORS, 40, batch_first=True)
        self.out = nn.Linear(40, SENSORS)

    def forward(self, x):
        return self.out(self.gru(x)[1][0])


train, val = SpeedSeries(1600), SpeedSeries(400)
model = SpeedNet()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
scheduler = ReduceLROnPlateau(optimizer, factor=0.3, patience=3)
for epoch in range(6):
    model.train()
    total = 0.0
    for x, y in train.batches(32):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        if not MENDED:
            scheduler.step(loss.item())
    model.eval()
    with torch.no_grad():
        val_loss = nn.functional.mse_loss(model(val.x), val.y).item()
    if MENDED:
        scheduler.step(val_loss)
    print(f"epoch {epoch} train {total / 50:.4f} val {val_loss:.4f}")
