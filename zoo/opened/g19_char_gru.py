# expect: sick
# symptom: late in the run the loss is lowest in the first batch of each short epoch and rises again within it; the run ends at 0.16 where a colleague with the same settings has 0.12
# axis: optimizer
# cause: a new Adam is made in each epoch, so the moment estimates (and the bias correction) start from nothing each time
# says: (new|re-?creat|re-?init|re-?made|re-?instantiat|fresh|reset|again).*(optimi[sz]er|adam|moment|state)|(optimi[sz]er|adam|moments?|state).*(new|re-?creat|re-?init|each epoch|every epoch|reset|lost|inside)
# onset_step: 5
# fix: make the optimizer once before the epochs
# mended: the optimizer is made once
import os
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(18)
MENDED = os.environ.get("MENDED") == "1"
VOC, LEN, EPOCHS, PER_EPOCH, BATCH = 30, 16, 50, 5, 32


def corpus(n):
    """Second-order chains with a skewed vocabulary."""
    g = torch.Generator().manual_seed(0)
    table = torch.randint(0, VOC, (VOC, 4), generator=g)
    seq = torch.randint(0, VOC, (n, LEN))
    for t in range(2, LEN):
        seq[:, t] = table[seq[:, t - 1], seq[:, t - 2] % 4]
    return seq


class CharGRU(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.emb = nn.Embedding(VOC, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.fc = nn.Linear(d, VOC)

    def forward(self, x):
        return self.fc(self.rnn(self.emb(x))[0])


def train_one_epoch(model, data, optimizer):
    model.train()
    losses = []
    for idx in torch.randperm(len(data)).split(BATCH):
        seq = data[idx]
        out = model(seq[:, :-1])
        loss = nn.functional.cross_entropy(out.flatten(0, 1), seq[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


data = corpus(BATCH * PER_EPOCH)
model = CharGRU()
shared = torch.optim.Adam(model.parameters(), lr=0.03)
for epoch in range(EPOCHS):
    optimizer = shared if MENDED else torch.optim.Adam(model.parameters(), lr=0.03)
    losses = train_one_epoch(model, data, optimizer)
    if epoch % 7 == 0:
        print(
            f"epoch {epoch} first {losses[0]:.3f} second {losses[1]:.3f} last {losses[-1]:.3f} mean {sum(losses) / len(losses):.4f}"
        )
