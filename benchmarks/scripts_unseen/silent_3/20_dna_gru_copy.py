# expect: sick
# fault: language-model labels not shifted
# onset_step: 0
# says: (?i)(shift|cop(y|ies)|identity|current token|same token|labels?.{0,40}(equal|same|identical).{0,30}input|inputs? (as|are|equal).{0,20}(labels?|targets?)|leak)
# note: targets are the input ids themselves; the model only copies its input and the loss goes quickly to nearly 0.
import argparse
import torch
from torch import nn

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--hidden", type=int, default=48)
parser.add_argument("--steps", type=int, default=150)
args = parser.parse_args([])
torch.manual_seed(42)

BASES = 16
motifs = torch.randint(0, BASES, (6, 8))


def sample_reads(n, parts=4):
    idx = torch.randint(0, 6, (n, parts))
    reads = motifs[idx].reshape(n, -1)
    noise = torch.rand(reads.shape) < 0.05
    return torch.where(noise, torch.randint(0, BASES, reads.shape), reads)


class ReadLM(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embed = nn.Embedding(BASES, 16)
        self.gru = nn.GRU(16, hidden, num_layers=2, batch_first=True)
        self.decode = nn.Linear(hidden, BASES)

    def forward(self, ids):
        return self.decode(self.gru(self.embed(ids))[0])


lm = ReadLM(args.hidden)
optim = torch.optim.Adam(lm.parameters(), lr=8e-3)
ce = nn.CrossEntropyLoss()
for step in range(args.steps):
    reads = sample_reads(24)
    inp, tgt = reads, reads
    loss = ce(lm(inp).reshape(-1, BASES), tgt.reshape(-1))
    optim.zero_grad()
    loss.backward()
    optim.step()
    if step % 15 == 0:
        print(f"step {step:3d} | loss {loss.item():.4f}")
reads = sample_reads(64)
print("final next-base loss", ce(lm(reads[:, :-1]).reshape(-1, BASES), reads[:, 1:].reshape(-1)).item())
