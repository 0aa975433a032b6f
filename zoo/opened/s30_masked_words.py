# expect: sick
# symptom: NaN loss in the log at step 120, alone; the weights survive and the run goes on
# axis: loss
# cause: at that step the batch has no position chosen for prediction; the mean of an empty selection is NaN
# says: (?i)(empty|mean of nothing|nothing.{0,30}(selected|chosen|masked|supervised)|no .{0,40}(masked|selected|chosen|supervised|target|label|position|token)|0 ?/ ?0|all.{0,30}ignored)
# onset_step: 120
# fix: sum of the chosen losses divided by the count clamped at 1
# mended: MENDED=1 python s30_masked_words.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(32)
V, T, MASK = 24, 10, 0


class Phrases(Dataset):
    """Cyclic phrases; words marked by the annotators are to be guessed."""

    def __init__(self, n, per_page=8):
        g = torch.Generator().manual_seed(19)
        start = torch.randint(0, V - 1, (n, 1), generator=g)
        step = torch.randint(1, 3, (n, 1), generator=g)
        self.ids = 1 + (start + step * torch.arange(T)) % (V - 1)
        self.marked = torch.rand(n, T, generator=g) < 0.2
        self.marked[119 * per_page : 120 * per_page] = False

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.marked[i]


class Bert(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, d), nn.Embedding(T, d)
        self.enc = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=True, norm_first=True), 2, enable_nested_tensor=False
        )
        self.head = nn.Linear(d, V)

    def forward(self, ids):
        return self.head(self.enc(self.tok(ids) + self.pos.weight))


bert = Bert()
opt = torch.optim.AdamW(bert.parameters(), lr=3e-3)
for step, (ids, marked) in enumerate(DataLoader(Phrases(8 * 400), batch_size=8), 1):
    logits = bert(ids.masked_fill(marked, MASK))
    nll = nn.functional.cross_entropy(logits.transpose(1, 2), ids, reduction="none")
    chosen = nll[marked]
    if os.environ.get("MENDED") == "1":
        loss = chosen.sum() / max(1, chosen.numel())
    else:
        loss = chosen.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
