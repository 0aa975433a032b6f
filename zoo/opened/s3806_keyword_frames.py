# expect: sick
# symptom: the loss leaps in the first steps, then stays at chance for good; the printed gradient norm is harmless
# axis: optimizer
# cause: gradient clipping covers only the head parameters, so the exploding gradients of the RNN are unclipped
# says: clip.*(head|only|part|classifier|subset|recurrent|rnn|frontend|\ball\b|whole|not cover)|unclipped
# onset_step: 0
# fix: clip the gradients of all parameters of the model
# mended: the script applies that change if the environment has MENDED=1
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(4)
MENDED = os.environ.get("MENDED") == "1"

N_MEL, T, N_WORDS = 16, 60, 6


class KeywordCorpus:
    """Log-mel like frames: each word is a path of three formant positions with random onset and tempo."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        lex = torch.Generator().manual_seed(500)
        paths = torch.rand(N_WORDS, 3, generator=lex) * (N_MEL - 4) + 2
        self.y = torch.randint(0, N_WORDS, (n,), generator=g)
        start = torch.randint(2, 20, (n, 1), generator=g).float()
        seg = torch.randint(8, 13, (n, 1), generator=g).float()
        t = torch.arange(T).float().unsqueeze(0)
        idx = torch.div(t - start, seg, rounding_mode="floor").long()
        active = ((idx >= 0) & (idx < 3)).float()
        pos = paths[self.y].gather(1, idx.clamp(0, 2))
        mel = torch.arange(N_MEL).float()
        bump = torch.exp(-((mel - pos.unsqueeze(-1)) ** 2) / 3.0) * active.unsqueeze(-1)
        self.x = 2.0 * bump + 0.3 * torch.randn(n, T, N_MEL, generator=g)

    def __len__(self):
        return len(self.y)


class KeywordSpotter(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.frontend = nn.Linear(N_MEL, hidden)
        self.rnn = nn.RNN(hidden, hidden, nonlinearity="relu", batch_first=True)
        nn.init.eye_(self.rnn.weight_hh_l0)
        nn.init.normal_(self.rnn.weight_ih_l0, std=0.05)
        nn.init.zeros_(self.rnn.bias_hh_l0)
        nn.init.zeros_(self.rnn.bias_ih_l0)
        self.head = nn.Linear(hidden, N_WORDS)

    def forward(self, x):
        _, h = self.rnn(torch.relu(self.frontend(x)))
        return self.head(h[-1])


class Trainer:
    def __init__(self, model, train, val, lr, max_norm):
        self.model, self.train, self.val, self.max_norm = model, train, val, max_norm
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.clipped = list((model if MENDED else model.head).parameters())
        self.gen = torch.Generator().manual_seed(0)

    def step(self, batch):
        idx = torch.randint(0, len(self.train), (batch,), generator=self.gen)
        loss = F.cross_entropy(self.model(self.train.x[idx]), self.train.y[idx])
        self.opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.clipped, self.max_norm)
        self.opt.step()
        return loss.item(), norm.item()

    @torch.no_grad()
    def accuracy(self):
        return (self.model(self.val.x).argmax(1) == self.val.y).float().mean().item()


def main():
    trainer = Trainer(KeywordSpotter(), KeywordCorpus(3000, 0), KeywordCorpus(600, 1), lr=0.0015, max_norm=1.0)
    hist = []
    for step in range(1, 401):
        loss, norm = trainer.step(32)
        hist.append(loss)
        if step % 20 == 0:
            print(f"step {step:4d} loss {sum(hist) / len(hist):.4g} max {max(hist):.4g} grad norm {norm:.3f}")
            hist = []
        if step % 100 == 0:
            print(f"  val acc {trainer.accuracy():.3f}")
    print(f"final loss {loss:.4g} val_acc {trainer.accuracy():.3f}")


if __name__ == "__main__":
    main()
