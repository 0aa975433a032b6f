# expect: healthy
# fault: none, the sequences are padded on the left, so the last position is every row's own last token
# onset_step: none
# says: (?!)
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(30)
PAD, VOCAB, CLASSES = 0, 40, 4


def pad_batch(seqs):
    longest = max(len(s) for s in seqs)
    grid = torch.full((len(seqs), longest), PAD, dtype=torch.long)
    for row, s in zip(grid, seqs):
        row[longest - len(s) :] = torch.as_tensor(s)
    return grid


def make_sessions(n, gen):
    sessions = []
    for _ in range(n):
        m = int(torch.randint(3, 38, (1,), generator=gen))
        clicks = torch.randint(1 + CLASSES, VOCAB, (m,), generator=gen)
        y = int(torch.randint(0, CLASSES, (1,), generator=gen))
        clicks[int(torch.randint(0, m, (1,), generator=gen))] = 1 + y
        sessions.append((clicks.tolist(), y))
    return sessions


class SessionModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(VOCAB, 32, padding_idx=PAD)
        self.rnn = nn.LSTM(32, 48, batch_first=True)
        self.head = nn.Linear(48, CLASSES)

    def forward(self, clicks):
        out, _ = self.rnn(self.items(clicks))
        return self.head(out[:, -1])


def batches(sessions, size, gen=None):
    order = torch.randperm(len(sessions), generator=gen).tolist()
    for i in range(0, len(order), size):
        part = [sessions[j] for j in order[i : i + size]]
        yield pad_batch([c for c, _ in part]), torch.tensor([y for _, y in part])


def train():
    gen = torch.Generator().manual_seed(30)
    data, held = make_sessions(1500, gen), make_sessions(300, gen)
    model = SessionModel()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    step = 0
    for epoch in range(6):
        for clicks, y in batches(data, 36, gen):
            loss = F.cross_entropy(model(clicks), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 42 == 0:
                print(f"[{step}] {loss.item():.4f}")
    with torch.no_grad():
        hits = [(model(c).argmax(-1) == y).float().mean() for c, y in batches(held, 60)]
    print("held-out accuracy", torch.stack(hits).mean().item())


if __name__ == "__main__":
    train()
