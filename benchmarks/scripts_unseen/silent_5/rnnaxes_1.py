# expect: sick
# fault: nn.TransformerEncoder is built without batch_first and gets [batch, time, features], so attention runs across the examples of a batch
# onset_step: 1
# says: (?i)(batch_first|mixed.?rows|over the rows|across the batch|axes)
import torch
from torch import nn
from torch.utils.data import TensorDataset, DataLoader

torch.set_num_threads(1)
torch.manual_seed(21)

CLASSES, T, D_IN = 4, 20, 6


def synth(n):
    y = torch.randint(0, CLASSES, (n,))
    x = torch.randn(n, T, D_IN) * 0.6
    start = torch.randint(0, T - 6, (n,))
    ramp = torch.linspace(-1.5, 1.5, 6)
    for i in range(n):
        s = int(start[i])
        bump = ramp if y[i] % 2 == 0 else ramp.flip(0)
        x[i, s : s + 6, int(y[i]) // 2] += bump
    return x, y


class SensorEncoder(nn.Module):
    def __init__(self, d_model=32, heads=4, depth=2):
        super().__init__()
        self.lift = nn.Linear(D_IN, d_model)
        self.pos = nn.Parameter(torch.randn(1, T, d_model) * 0.02)
        layer = nn.TransformerEncoderLayer(d_model, heads, dim_feedforward=64, dropout=0.1)
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.classify = nn.Sequential(nn.LayerNorm(d_model), nn.Linear(d_model, CLASSES))

    def forward(self, readings):
        z = self.lift(readings) + self.pos
        z = self.encoder(z)
        return self.classify(z.mean(dim=1))


def evaluate(model, loader):
    model.eval()
    hits, seen = 0, 0
    with torch.inference_mode():
        for x, y in loader:
            hits += int((model(x).argmax(-1) == y).sum())
            seen += y.numel()
    model.train()
    return hits / seen


train_loader = DataLoader(TensorDataset(*synth(1600)), batch_size=32, shuffle=True, drop_last=True)
val_loader = DataLoader(TensorDataset(*synth(320)), batch_size=64)

model = SensorEncoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1.5e-3, weight_decay=0.01)
criterion = nn.CrossEntropyLoss()

for epoch in range(5):
    running = 0.0
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running += loss.item()
    print(f"epoch {epoch}: train {running / len(train_loader):.4f} val acc {evaluate(model, val_loader):.3f}")
