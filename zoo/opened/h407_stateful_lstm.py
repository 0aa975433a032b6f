# expect: healthy
# symptom: resembles hidden states that leak between sequences (or keep old graphs): the state is carried from batch to batch and never shuffled
# axis: harness
# cause: none
# says: none
# onset_step: 0
# fix: none
# mended: not needed
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(47)
torch.set_num_threads(1)

VOCAB, WIDTH, STREAMS, CHUNK, LENGTH, EPOCHS = 28, 96, 24, 20, 3000, 4


class StatefulLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 32)
        self.rnn = nn.LSTM(32, WIDTH, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids, state):
        h, state = self.rnn(self.emb(ids), state)
        return self.out(self.drop(h)), state


def make_streams(n, length):
    tables = torch.stack([torch.randperm(VOCAB, generator=torch.Generator().manual_seed(s)) for s in range(2)])
    mode = torch.randint(0, 2, (n,))
    ids = torch.randint(0, VOCAB, (n, length))
    for t in range(1, length):
        mode = torch.where(torch.rand(n) < 0.01, 1 - mode, mode)
        follow = torch.rand(n) < 0.8
        nxt = tables[mode, ids[:, t - 1]]
        ids[:, t] = torch.where(follow, nxt, ids[:, t])
    return ids


def detach(state):
    return None if state is None else tuple(s.detach() for s in state)


@torch.no_grad()
def evaluate(model, streams):
    model.eval()
    logits, _ = model(streams[:, :-1], None)
    loss = F.cross_entropy(logits.flatten(0, 1), streams[:, 1:].flatten()).item()
    model.train()
    return loss


def main():
    train, valid = make_streams(STREAMS, LENGTH + 1), make_streams(16, 301)
    model = StatefulLM()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.5)
    t0 = time.time()
    step = 0
    for epoch in range(EPOCHS):
        state = None
        for start in range(0, LENGTH, CHUNK):
            step += 1
            x = train[:, start : start + CHUNK]
            y = train[:, start + 1 : start + CHUNK + 1]
            logits, state = model(x, detach(state))
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if step == 1 or step % 50 == 0:
                print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f}")
        sched.step()
        print(f"epoch {epoch} valid {evaluate(model, valid):.4f}")
    print(f"done in {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
