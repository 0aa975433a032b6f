# expect: sick
# symptom: the CTC loss falls normally and then becomes inf in one batch, NaN ever after
# axis: data
# cause: the length filter compares the number of labels with the number of input frames instead of the frames after the 4x subsampling (plus blanks between repeats): a few fast utterances have more labels than encoder outputs, no alignment exists, CTC loss is inf and its gradient NaN
# says: (target|label|transcript)s?.{0,60}(longer|exceed|more|too long|too many|>).{0,80}(input|frame|output|time|encoder|length)|(input|frame|utterance|output)s?.{0,60}(shorter|fewer|too short|too few|less).{0,60}(target|label|transcript|token)|zero_infinity|infeasible|no (valid |possible )?alignment|subsampl
# onset_step: 127
# fix: filter by the subsampled length (labels + repeats <= output frames), or zero_infinity=True
# mended: the filter uses the number of frames after subsampling and counts repeats
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(0)

N_PHONE, FEAT, BATCH, EPOCHS = 20, 24, 12, 3


class Corpus:
    def __init__(self, n=1800, seed=1):
        g = torch.Generator().manual_seed(seed)
        proto = torch.randn(N_PHONE + 1, FEAT, generator=g)
        self.items = []
        for i in range(n):
            k = int(torch.randint(4, 9, (1,), generator=g))
            rate = 8 + 6 * torch.rand(1, generator=g).item()
            if torch.rand(1, generator=g).item() < 0.0008:
                rate, k = 3.0, 12
            lab = torch.randint(1, N_PHONE + 1, (k,), generator=g)
            dur = (rate * (0.9 + 0.3 * torch.rand(k, generator=g))).round().long().clamp(min=2)
            x = proto[lab].repeat_interleave(dur, 0)
            x = x + 0.7 * torch.randn(x.shape, generator=g)
            self.items.append((x, lab))
        self.items = [it for it in self.items if self.usable(*it)]
        self.g = torch.Generator().manual_seed(27)

    @staticmethod
    def usable(x, lab):
        if MENDED:
            repeats = int((lab[1:] == lab[:-1]).sum())
            return len(lab) + repeats <= out_len(len(x))
        return len(lab) <= len(x)

    def batches(self):
        order = torch.randperm(len(self.items), generator=self.g).tolist()
        for i in range(0, len(order) - BATCH + 1, BATCH):
            part = [self.items[j] for j in order[i : i + BATCH]]
            xl = torch.tensor([len(x) for x, _ in part])
            yl = torch.tensor([len(y) for _, y in part])
            x = nn.utils.rnn.pad_sequence([x for x, _ in part], batch_first=True)
            y = torch.cat([y for _, y in part])
            yield x, xl, y, yl


def out_len(n):
    return ((n - 1) // 2 + 1 - 1) // 2 + 1


class Acoustic(nn.Module):
    def __init__(self, hid=64):
        super().__init__()
        self.c1 = nn.Conv1d(FEAT, hid, 5, stride=2, padding=2)
        self.c2 = nn.Conv1d(hid, hid, 5, stride=2, padding=2)
        self.rnn = nn.GRU(hid, hid, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hid, N_PHONE + 1)

    def forward(self, x):
        h = F.relu(self.c2(F.relu(self.c1(x.transpose(1, 2)))))
        h, _ = self.rnn(h.transpose(1, 2))
        return self.out(h).log_softmax(-1)


def main():
    data, model = Corpus(), Acoustic()
    print(f"{len(data.items)} utterances, {sum(p.numel() for p in model.parameters())} parameters")
    ctc = nn.CTCLoss(blank=0)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step, t0 = 0, time.time()
    for epoch in range(EPOCHS):
        for x, xl, y, yl in data.batches():
            logp = model(x)
            loss = ctc(logp.transpose(0, 1), y, out_len(xl), yl)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if step % 5 == 0:
                print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f} ({time.time() - t0:.1f}s)", flush=True)
            step += 1


if __name__ == "__main__":
    main()
