# expect: healthy
# symptom: the first optimizer steps are skipped with inf gradients and the loss scale falls again and again (resembles a loss-scale collapse)
# axis: precision
# cause: healthy: the scaler starts far too high and searches downwards by halving, then stays at a usable scale and training proceeds
# says: none
# onset_step: none
# fix: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def sensor_windows(n, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(24)[None, :, None]
    cls = rng.integers(0, 4, n)
    freq = np.array([0.15, 0.3, 0.45, 0.6])[cls][:, None, None]
    phase = rng.uniform(0, 6.28, (n, 1, 3))
    amp = rng.uniform(0.7, 1.3, (n, 1, 3))
    x = amp * np.sin(6.28 * freq * t * 0.5 + phase) + 0.4 * rng.normal(size=(n, 24, 3))
    return TensorDataset(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(cls))


class SensorNet(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(3, hidden), nn.GELU(), nn.Linear(hidden, hidden))
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 4))

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.float16):
            h = self.stem(x)
        h, _ = self.rnn(h.float())
        with torch.autocast("cpu", dtype=torch.float16):
            return self.head(h[:, -1])


def main():
    torch.manual_seed(6)
    loader = DataLoader(sensor_windows(3200, 1), batch_size=64, shuffle=True)
    test = sensor_windows(800, 2)
    model = SensorNet()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**26, growth_interval=100)
    crit = nn.CrossEntropyLoss()
    step = skipped = 0
    for epoch in range(8):
        for x, y in loader:
            loss = crit(model(x).float(), y)
            opt.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            before = scaler.get_scale()
            scaler.step(opt)
            scaler.update()
            skipped += scaler.get_scale() < before
            step += 1
            if step <= 12 or step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale():.0f} skipped {skipped}")
    model.eval()
    with torch.no_grad():
        x, y = test.tensors
        print(f"test accuracy {(model(x).argmax(1) == y).float().mean().item():.3f}, {skipped} of {step} steps skipped")


if __name__ == "__main__":
    main()
