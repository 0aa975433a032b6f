# expect: sick
# symptom: the loss stays far above what the model can reach
# axis: model
# cause: the state of a recurrent layer is carried from one batch to the next although the batches are unrelated
# says: (hidden|state|memory|carr).{0,160}
# onset_step: 0
# fix: begin each batch with a new state
# mended: the same with the fix
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(3)
torch.set_num_threads(1)

SEQ_LEN = 15
BATCH = 32
EPOCHS = 6


def make_votes(n):
    votes = (torch.rand(n, SEQ_LEN) < torch.rand(n, 1)).long()
    winner = (votes.sum(1) > SEQ_LEN // 2).long()
    return votes, winner


class VoteCounter(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.embed = nn.Embedding(2, 8)
        self.lstm = nn.LSTM(8, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 2)

    def forward(self, votes, state=None):
        out, state = self.lstm(self.embed(votes), state)
        return self.head(out[:, -1]), state


train_x, train_y = make_votes(1280)
test_x, test_y = make_votes(512)
loader = DataLoader(TensorDataset(train_x, train_y), batch_size=BATCH, shuffle=True, drop_last=True)

net = VoteCounter()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
criterion = nn.CrossEntropyLoss()

state = (torch.zeros(1, BATCH, 24), torch.zeros(1, BATCH, 24))
for epoch in range(EPOCHS):
    net.train()
    running = 0.0
    for xb, yb in loader:
        if MENDED:
            state = None
        optimizer.zero_grad()
        logits, state = net(xb, state)
        loss = criterion(logits, yb)
        loss.backward()
        optimizer.step()
        state = tuple(s.detach() for s in state)
        running += loss.item()

    net.eval()
    with torch.no_grad():
        logits, _ = net(test_x)
        acc = (logits.argmax(1) == test_y).float().mean().item()
    print(f"epoch {epoch} train loss {running / len(loader):.4f} test acc {acc:.3f}")
