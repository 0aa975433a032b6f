# expect: healthy
# symptom: the loss jumps up several times after it had almost reached zero (steps are not regular), and the batch's shape changes while training
# axis: none
# mended: none
"""LSTM on the copy task with a length curriculum: the next length comes when the present one is mastered."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(6)

SYMBOLS, BLANK, GO = 8, 8, 9
VOCAB, BATCH, STEPS = 10, 64, 700
LENGTHS = (1, 2, 3, 4, 5)
REVIEW = 0.25  # share of the batches that repeat an earlier length


def copy_batch(n, length):
    """Input: the symbols, GO, blanks. Target: blanks until GO, then the symbols."""
    sym = torch.randint(0, SYMBOLS, (n, length))
    x = torch.full((n, 2 * length + 1), BLANK)
    x[:, :length] = sym
    x[:, length] = GO
    return x, sym


class CopyLSTM(nn.Module):
    def __init__(self, dim=112):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 24)
        self.rnn = nn.LSTM(24, dim, batch_first=True)
        self.head = nn.Linear(dim, SYMBOLS)

    def forward(self, x, length):
        h, _ = self.rnn(self.emb(x))
        return self.head(h[:, -length:])


class Curriculum:
    """Goes one length further as soon as the running accuracy is above the threshold."""

    def __init__(self, lengths, threshold=0.95):
        self.lengths, self.threshold = lengths, threshold
        self.stage, self.running = 0, 0.0

    @property
    def length(self):
        return self.lengths[self.stage]

    def report(self, acc):
        self.running = 0.9 * self.running + 0.1 * acc
        if self.running > self.threshold and self.stage + 1 < len(self.lengths):
            self.stage += 1
            self.running = 0.0
            return True
        return False


def main():
    model = CopyLSTM()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    plan = Curriculum(LENGTHS)
    for step in range(STEPS):
        review = plan.stage > 0 and torch.rand(1).item() < REVIEW
        length = LENGTHS[int(torch.randint(0, plan.stage, (1,)))] if review else plan.length
        x, sym = copy_batch(BATCH, length)
        logits = model(x, length)
        loss = F.cross_entropy(logits.reshape(-1, SYMBOLS), sym.reshape(-1))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        acc = (logits.argmax(-1) == sym).float().mean().item()
        if step % 20 == 0:
            print(f"step {step} length {length} loss {loss.item():.4f} accuracy {acc:.3f}")
        if not review and plan.report(acc):
            print(f"step {step}: on to length {plan.length}")
    with torch.no_grad():
        for length in LENGTHS:
            x, sym = copy_batch(200, length)
            acc = (model(x, length).argmax(-1) == sym).float().mean().item()
            print(f"length {length} accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
