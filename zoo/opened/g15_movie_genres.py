# expect: sick
# symptom: the loss does not fall below about 3 and a film with three genres never gets three high probabilities
# axis: loss
# cause: many-hot labels (several genres per film) go into a softmax cross-entropy, where classes compete; each label needs its own sigmoid
# says: multi.?label|many.?hot|multi.?hot|sigmoid|BCE|binary cross|softmax.*(compet|several|exclusive|label)|sum to (more|one)
# onset_step: 0
# fix: BCEWithLogitsLoss and sigmoid
# mended: BCE with logits and sigmoid
import os
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
np.random.seed(7)
torch.manual_seed(7)
GENRES = ["drama", "comedy", "action", "horror", "romance", "crime", "family", "scifi"]
VOCAB = 240


def films(n):
    tags = (np.random.rand(n, 8) < np.array([0.5, 0.4, 0.3, 0.2, 0.3, 0.25, 0.2, 0.2])).astype("float32")
    tags[tags.sum(1) == 0, 0] = 1
    topic = np.random.RandomState(1).gamma(0.2, 1.0, (8, VOCAB))
    rate = tags @ topic
    bag = np.random.poisson(60 * rate / rate.sum(1, keepdims=True))
    return np.log1p(bag).astype("float32"), tags


class PlotClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(VOCAB, 64)
        self.drop = nn.Dropout(0.2)
        self.fc2 = nn.Linear(64, len(GENRES))

    def forward(self, bag):
        return self.fc2(self.drop(torch.relu(self.fc1(bag))))


def f1_micro(pred, true):
    tp = (pred * true).sum()
    return (2 * tp / (pred.sum() + true.sum())).item()


bag, tags = map(torch.from_numpy, films(2400))
bag_val, tags_val = map(torch.from_numpy, films(500))
model = PlotClassifier()
if MENDED:
    criterion, activate = nn.BCEWithLogitsLoss(), torch.sigmoid
else:
    criterion, activate = nn.CrossEntropyLoss(), lambda s: torch.softmax(s, -1)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(7):
    model.train()
    for idx in torch.randperm(len(bag)).split(60):
        scores = model(bag[idx])
        loss = criterion(scores, tags[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        pred = (activate(model(bag_val)) > 0.5).float()
    print(
        f"epoch {epoch} loss {loss.item():.4f} micro F1 {f1_micro(pred, tags_val):.3f} genres per film {pred.sum(1).mean():.2f} (true {tags_val.sum(1).mean():.2f})"
    )
