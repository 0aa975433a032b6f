# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: data
# cause: rows of unequal length are padded on one side and their labels or mask on the other, so labels belong to other places
# says: pad|mask|offset
# onset_step: 0
# fix: pad labels and masks as the inputs
# mended: yes
import os
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

MENDED = os.environ.get("MENDED") == "1"

torch.manual_seed(0)

VOCAB, CLASSES = 80, 3


def synth_reviews(n):
    texts, stars = [], []
    for _ in range(n):
        star = int(torch.randint(CLASSES, (1,)))
        length = int(torch.randint(4, 30, (1,)))
        common = torch.randint(1, 50, (length,))
        topical = torch.randint(50 + 10 * star, 60 + 10 * star, (length,))
        use_topic = torch.rand(length) < 0.3
        texts.append(torch.where(use_topic, topical, common))
        stars.append(star)
    return texts, torch.tensor(stars)


def to_batch(texts):
    lengths = torch.tensor([t.numel() for t in texts])
    flipped = [t.flip(0) for t in texts]
    ids = pad_sequence(flipped, batch_first=True, padding_value=0).flip(1)
    steps = torch.arange(ids.size(1))
    mask = ids > 0 if MENDED else steps.unsqueeze(0) < lengths.unsqueeze(1)
    return ids, mask


class PooledClassifier(nn.Module):
    def __init__(self, dim=40):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.mix = nn.Sequential(nn.Linear(dim, dim), nn.GELU())
        self.cls = nn.Linear(dim, CLASSES)

    def forward(self, ids, mask):
        h = self.mix(self.embed(ids))
        m = mask.unsqueeze(-1).to(h.dtype)
        pooled = (h * m).sum(1) / m.sum(1).clamp(min=1.0)
        return self.cls(pooled)


train_x, train_y = synth_reviews(800)
valid_x, valid_y = synth_reviews(200)
model = PooledClassifier()
optim = torch.optim.Adam(model.parameters(), lr=5e-3)
criterion = nn.CrossEntropyLoss()

step = 0
for epoch in range(3):
    model.train()
    order = torch.randperm(len(train_x)).tolist()
    for start in range(0, len(order), 50):
        chunk = order[start : start + 50]
        ids, mask = to_batch([train_x[i] for i in chunk])
        loss = criterion(model(ids, mask), train_y[chunk])
        optim.zero_grad()
        loss.backward()
        optim.step()
        step += 1
    model.eval()
    with torch.no_grad():
        ids, mask = to_batch(valid_x)
        acc = (model(ids, mask).argmax(1) == valid_y).float().mean().item()
    print(f"epoch {epoch} step {step} loss {loss.item():.3f} valid acc {acc:.3f}")
