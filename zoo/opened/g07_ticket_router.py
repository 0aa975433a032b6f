# expect: sick
# symptom: 97 percent on the held-out tickets in batches of 50, but only 75 percent when they come one by one; the prediction for one ticket changes with its neighbours
# axis: model
# cause: the encoder attends over padded positions (no key padding mask), and the padding is averaged in too
# says: pad(ding|ded)?.*(mask|attend|attention|ignored)|(mask|attend|attention).*pad|key_padding
# onset_step: 0
# fix: hand src_key_padding_mask to the encoder and average over real tokens only
# mended: the padding mask goes to the encoder and the mean runs over real tokens
import os
import random
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
random.seed(2)
torch.manual_seed(2)
VOCAB, CLASSES, PAD = 120, 5, 0


def write_ticket():
    label = random.randrange(CLASSES)
    n = random.choice([4, 5, 6, 8, 40])
    words = [random.randrange(20, VOCAB) for _ in range(n)]
    words[random.randrange(n)] = 1 + label * 3 + random.randrange(3)
    return words, label


def collate(batch):
    longest = max(len(w) for w, _ in batch)
    ids = torch.full((len(batch), longest), PAD)
    for row, (w, _) in enumerate(batch):
        ids[row, : len(w)] = torch.tensor(w)
    return ids, torch.tensor([l for _, l in batch])


class Router(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Embedding(64, d)
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, CLASSES)

    def forward(self, ids):
        h = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        if MENDED:
            empty = ids == PAD
            h = self.encoder(h, src_key_padding_mask=empty)
            real = (~empty).unsqueeze(-1).float()
            return self.head((h * real).sum(1) / real.sum(1))
        h = self.encoder(h)
        return self.head(h.mean(1))


train = DataLoader([write_ticket() for _ in range(1600)], 32, shuffle=True, collate_fn=collate)
held = [write_ticket() for _ in range(300)]
model = Router()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
for epoch in range(4):
    model.train()
    for ids, label in train:
        loss = nn.functional.cross_entropy(model(ids), label)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    model.eval()
    with torch.no_grad():
        hits = sum((model(i).argmax(1) == l).sum().item() for i, l in DataLoader(held, 50, collate_fn=collate))
        ones = sum((model(i).argmax(1) == l).sum().item() for i, l in DataLoader(held, 1, collate_fn=collate))
    print(f"epoch {epoch} loss {loss.item():.3f} held-out {hits / 300:.3f} one by one {ones / 300:.3f}")
