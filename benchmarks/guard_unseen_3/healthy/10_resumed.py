# The job is stopped at step 350 and resumed from its checkpoint: model, optimizer and schedule are built anew and loaded, and the
# rate warms up again for 40 steps. LSTM, AdamW.
import argparse
import io

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
fixed = torch.Generator().manual_seed(340)


def events(n, g=None):
    s = torch.randint(0, 6, (n, 14), generator=g)
    return s, ((s == 0).cumsum(1) - (s == 1).cumsum(1) > 0).long()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(6, 12)
        self.lstm = nn.LSTM(12, 20, batch_first=True)
        self.out = nn.Linear(20, 2)

    def forward(self, s):
        return self.out(self.lstm(self.emb(s))[0]).transpose(1, 2)


def build():
    model = Tagger()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    return model, opt


test_s, test_y = events(1000, fixed)
torch.manual_seed(args.seed)
model, opt = build()
for step in range(700):
    if step == 350:
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, file)
        file.seek(0)
        model, opt = build()
        state = torch.load(file)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
    for group in opt.param_groups:
        group["lr"] = 3e-3 * min(1.0, (step % 350 + 1) / 40)
    s, y = events(32)
    loss = nn.functional.cross_entropy(model(s), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(model(test_s), test_y).item())
