# expect: healthy
# symptom: the printed window loss is in the thousands at first, the loss uses reduction="sum", backward runs four times without clearing, gradients are edited by hand before the step, and attention has no causal mask
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(23)

VOCAB, TAGS, PAD, MAX_LEN = 60, 5, 0, 40
ACCUM, BATCH, EPOCHS = 4, 8, 2


class Sentences(Dataset):
    """Tagging where the tag of a word depends on its class and on the classes of both neighbours."""

    def __init__(self, n, seed):
        r = np.random.default_rng(seed)
        kind = np.random.default_rng(0).integers(0, 4, VOCAB)
        rule = np.random.default_rng(1).integers(0, TAGS, (5, 4, 5))
        self.items = []
        for _ in range(n):
            k = int(r.choice([r.integers(4, 10), r.integers(25, MAX_LEN)]))
            w = r.integers(1, VOCAB, k)
            c = np.concatenate([[4], kind[w], [4]])
            t = rule[c[:-2], c[1:-1], c[2:]]
            self.items.append((torch.from_numpy(w), torch.from_numpy(t)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):
    w, t = zip(*items)
    return (
        nn.utils.rnn.pad_sequence(w, batch_first=True, padding_value=PAD),
        nn.utils.rnn.pad_sequence(t, batch_first=True, padding_value=-100),
    )


class Tagger(nn.Module):
    def __init__(self, d=64, depth=2, heads=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d, padding_idx=PAD), nn.Embedding(MAX_LEN, d)
        layer = nn.TransformerEncoderLayer(d, heads, 2 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.mix = nn.Conv1d(d, d, 3, padding=1)
        self.out = nn.Linear(d, TAGS)

    def forward(self, w):
        x = self.tok(w) + self.pos.weight[: w.shape[1]]
        x = x + self.mix(x.transpose(1, 2)).transpose(1, 2).relu()
        return self.out(self.enc(x, src_key_padding_mask=w == PAD))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hit = tot = 0
    for w, t in loader:
        m = t != -100
        hit += (model(w).argmax(-1)[m] == t[m]).sum().item()
        tot += m.sum().item()
    model.train()
    return hit / tot


def main():
    train = DataLoader(
        Sentences(6400, 1),
        batch_size=BATCH,
        shuffle=True,
        collate_fn=collate,
        drop_last=True,
        generator=torch.Generator().manual_seed(3),
    )
    dev = DataLoader(Sentences(300, 2), batch_size=50, collate_fn=collate)
    model = Tagger()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step, window_loss, window_tokens = 0, 0.0, 0
    for epoch in range(EPOCHS):
        for i, (w, t) in enumerate(train):
            loss = F.cross_entropy(model(w).flatten(0, 1), t.flatten(), ignore_index=-100, reduction="sum")
            loss.backward()
            window_loss += loss.item()
            window_tokens += int((t != -100).sum())
            if (i + 1) % ACCUM:
                continue
            for p in model.parameters():
                if p.grad is not None:
                    p.grad.div_(window_tokens)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            if step % 20 == 0:
                print(
                    f"step {step:4d}  window loss {window_loss:9.2f}  tokens {window_tokens}  "
                    f"per token {window_loss / window_tokens:.4f}"
                )
            step += 1
            window_loss, window_tokens = 0.0, 0
        print(f"epoch {epoch}  dev tag accuracy {accuracy(model, dev):.3f}")


if __name__ == "__main__":
    main()
