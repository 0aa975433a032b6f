# expect: sick
# symptom: loss becomes NaN at step 20
# axis: data
# cause: one cell of the CSV parses to inf (a ratio exported as 1e999), the row carries Inf into the model
# says: (?i)(\binf(inite|inity)?\b|non-?finite|1e999).{0,40}(input|row|feature|data|cell|column)|(input|row|feature|data|column|field|cell)s?.{0,40}(\binf\b|infinit|non-?finite|\bnan\b)
# onset_step: 20
# fix: drop rows with a non-finite cell
# mended: MENDED=1 python s18_sales_csv.py
import csv
import io
import math
import os
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(18)
STRICT = os.environ.get("MENDED") == "1"


def export(n):
    rnd, out = random.Random(3), io.StringIO()
    wr = csv.writer(out)
    wr.writerow(["price", "stock", "margin_ratio", "visits", "sold"])
    for i in range(n):
        p, s, m, v = (rnd.gauss(0, 1) for _ in range(4))
        sold = 2 * v - p + math.tanh(s) + 0.5 * m + rnd.gauss(0, 0.1)
        wr.writerow([f"{p:.4f}", f"{s:.4f}", "1e999" if i == 928 else f"{m:.4f}", f"{v:.4f}", f"{sold:.4f}"])
    return out.getvalue()


class Sales(Dataset):
    def __init__(self, text):
        rows = [[float(v) for v in r.values()] for r in csv.DictReader(io.StringIO(text))]
        if STRICT:
            rows = [r for r in rows if all(map(math.isfinite, r))]
        self.rows = torch.tensor(rows)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i, :4], self.rows[i, 4]


net = nn.Sequential(nn.Linear(4, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
loader = DataLoader(Sales(export(48 * 200)), batch_size=48, shuffle=False)
for i, (x, y) in enumerate(loader):
    pred = net(x).squeeze(1)
    loss = nn.functional.huber_loss(pred, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if (i + 1) % 10 == 0:
        print(f"step {i + 1} huber {loss.item():.4f}")
