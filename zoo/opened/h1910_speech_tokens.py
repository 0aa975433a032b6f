# expect: healthy
# symptom: resembles a CTC run with wrong blank or misaligned transcripts: summed losses near two hundred, blank in the last class, nothing decoded right at first
# axis: loss
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SYMBOLS = 8
BLANK = SYMBOLS  # last class
BANDS = 16


class Utterances(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        voice = torch.Generator().manual_seed(0)
        proto = 1.5 * torch.randn(SYMBOLS, 2, BANDS, generator=voice)
        self.items = []
        for _ in range(n):
            length = int(torch.randint(3, 7, (1,), generator=g))
            text = torch.randint(SYMBOLS, (length,), generator=g)
            frames = []
            for s in text:
                dur = int(torch.randint(4, 7, (1,), generator=g))
                mix = torch.linspace(0, 1, dur).unsqueeze(1)
                frames.append((1 - mix) * proto[s, 0] + mix * proto[s, 1])
                frames.append(torch.zeros(int(torch.randint(1, 4, (1,), generator=g)), BANDS))
            wave = torch.cat(frames)
            self.items.append((wave + 0.4 * torch.randn(wave.shape, generator=g), text))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    batch = sorted(batch, key=lambda it: len(it[0]), reverse=True)
    feats = nn.utils.rnn.pad_sequence([f for f, _ in batch], batch_first=True)
    flen = torch.tensor([len(f) for f, _ in batch])
    # transcripts go in one flat vector
    return feats, flen, torch.cat([t for _, t in batch]), torch.tensor([len(t) for _, t in batch])


class Recogniser(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.sub = nn.Conv1d(BANDS, hidden, 5, stride=2, padding=2)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, SYMBOLS + 1)

    def forward(self, x, lengths):
        h = torch.relu(self.sub(x.transpose(1, 2))).transpose(1, 2)
        lengths = (lengths + 1) // 2
        packed = nn.utils.rnn.pack_padded_sequence(h, lengths, batch_first=True)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(h).log_softmax(-1), lengths


def exact_match(model, loader):
    model.eval()
    hit = total = 0
    with torch.no_grad():
        for x, xl, t, tl in loader:
            lp, ol = model(x, xl)
            for path, n, ref in zip(lp.argmax(-1), ol, t.split(tl.tolist())):
                path = torch.unique_consecutive(path[:n])
                path = path[path != BLANK]
                hit += int(len(path) == len(ref) and bool((path == ref).all()))
                total += 1
    model.train()
    return hit / total


def main():
    torch.manual_seed(6)
    train = DataLoader(Utterances(480, 1), batch_size=8, shuffle=True, collate_fn=collate)
    val = DataLoader(Utterances(96, 2), batch_size=32, collate_fn=collate)
    model = Recogniser()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    ctc = nn.CTCLoss(blank=BLANK, reduction="sum", zero_infinity=True)
    step = 0
    for epoch in range(4):
        for x, xl, t, tl in train:
            lp, ol = model(x, xl)
            loss = ctc(lp.transpose(0, 1), t, ol, tl)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 40.0)
            opt.step()
            step += 1
            if step % 15 == 0:
                print(f"step {step} loss {loss.item():.2f}", flush=True)
        print(f"epoch {epoch} exact match {exact_match(model, val):.3f}", flush=True)


if __name__ == "__main__":
    main()
