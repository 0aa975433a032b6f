# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: model
# cause: the recurrence multiplies its state by a factor above 1 in every step, so the state grows exponentially
# says: state|recurren|grow
# onset_step: 0
# fix: keep the factor between 0 and 1
# mended: yes
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"


class DiagonalSSM(nn.Module):
    """Selective diagonal state space layer with an explicit scan."""

    def __init__(self, d_model, d_state=8):
        super().__init__()
        init = torch.arange(1, d_state + 1, dtype=torch.float32).repeat(d_model, 1)
        self.A_log = nn.Parameter(init.log())
        self.D = nn.Parameter(torch.ones(d_model))
        self.to_dt = nn.Linear(d_model, d_model)
        self.to_bc = nn.Linear(d_model, 2 * d_state, bias=False)
        nn.init.constant_(self.to_dt.bias, -4.0)

    def forward(self, u):
        n, length, d = u.shape
        A = -torch.exp(self.A_log) if MENDED else torch.exp(self.A_log)
        dt = F.softplus(self.to_dt(u))
        b, c = self.to_bc(u).chunk(2, dim=-1)
        a_bar = torch.exp(dt.unsqueeze(-1) * A)
        bu = dt.unsqueeze(-1) * b.unsqueeze(2) * u.unsqueeze(-1)
        h = u.new_zeros(n, d, A.size(1))
        ys = []
        for t in range(length):
            h = a_bar[:, t] * h + bu[:, t]
            ys.append((h * c[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(ys, dim=1) + self.D * u


class Net(nn.Module):
    def __init__(self, vocab, d=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.norm = nn.LayerNorm(d)
        self.ssm = DiagonalSSM(d)
        self.head = nn.Linear(d, vocab)

    def forward(self, tokens):
        x = self.emb(tokens)
        x = x + self.ssm(self.norm(x))
        return self.head(x)


def delayed(vocab, n, length, lag):
    tokens = torch.randint(1, vocab, (n, length))
    target = torch.zeros_like(tokens)
    target[:, lag:] = tokens[:, :-lag]
    return tokens, target


def main():
    torch.manual_seed(23)
    vocab, lag = 8, 2
    net = Net(vocab)
    opt = torch.optim.AdamW(net.parameters(), lr=4e-3)
    for step in range(40):
        tokens, target = delayed(vocab, 32, 32, lag)
        logits = net(tokens)
        loss = F.cross_entropy(logits[:, lag:].flatten(0, 1), target[:, lag:].flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        if step % 8 == 7:
            print(f"step {step + 1:2d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
