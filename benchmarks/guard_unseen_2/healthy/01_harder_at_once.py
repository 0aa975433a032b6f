# Healthy: an LSTM whose task gets harder at once (more symbols back to recall) at 350, 700 and 1,050.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(41)


def recall(n, back, g=None):
    w = torch.randint(0, 5, (n, 10), generator=g)
    return w, torch.roll(w, back, 1)[:, back:]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(5, 12), nn.LSTM(12, 32, batch_first=True), nn.Linear(32, 5)

    def forward(self, w, y, back):
        logits = self.out(self.rnn(self.emb(w))[0])[:, back:]
        return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())


test = recall(500, 4, fixed)
torch.manual_seed(args.seed)
model = Net()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(1400):
    back = 1 + step // 350
    loss = model(*recall(24, back), back)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, back, f"{loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", model(*test, 4).item())
