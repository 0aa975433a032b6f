# expect: sick
# symptom: federated training goes well for 15 rounds, then the global loss jumps up and stays far above where it was; accuracy gets stuck at a much lower level
# axis: harness
# cause: The federated averaging weights each client by its share of the sample count of all clients instead of only the clients that took part, so once some clients are offline the weights sum to less than one and the averaged global parameters shrink every round.
# says: (sum\w*|add\w*)( up)? to (less|under|below)|less than (one|1)\b|(do(es)?|did)(n't| not) (sum|add up)|(total|denominator|divid\w*|normali[sz]\w*|share\w*|fraction|count)[\s\S]{0,100}\b(all|every|full|whole|entire|fleet\w*|registered|absent|offline|missing|six)\b|(instead of|rather than|not)[\s\S]{0,60}(participat\w*|online|reachable|took part|available|active|present)|(shrink|shrank|shrunk)\w*
# onset_step: 283
# fix: divide by the sample count of the clients that took part in the round
# mended: yes
"""Activity recognition from phone accelerometers, trained by federated averaging.

Six phones hold their own windows (each with its own mix of activities); the server
collects three local SGD steps from every phone that is reachable and averages them.
"""

import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(11)

ACTIVITIES = ["walk", "run", "stairs", "cycle", "sit", "tram"]
WINDOW = 128
LOCAL_STEPS = 3
ROUNDS = 50
LR = 0.25


def make_windows(n, mix, gen):
    y = torch.multinomial(mix, n, replacement=True, generator=gen)
    base = torch.tensor([1.8, 2.8, 1.4, 1.0, 0.1, 6.0])[y]
    amp = torch.tensor([1.0, 2.0, 1.2, 0.6, 0.05, 0.25])[y]
    asym = torch.tensor([0.2, 0.3, 0.8, 0.1, 0.0, 0.4])[y]
    f = base * (1 + 0.1 * torch.randn(n, generator=gen))
    ph = 2 * math.pi * torch.rand(n, generator=gen)
    t = torch.arange(WINDOW) / 32.0
    arg = 2 * math.pi * f[:, None] * t + ph[:, None]
    vert = amp[:, None] * (arg.sin() + asym[:, None] * (2 * arg).cos())
    side = 0.5 * amp[:, None] * (arg / 2).sin()
    fwd = 0.3 * amp[:, None] * (arg + 0.7).cos()
    x = torch.stack([vert, side, fwd], 1)
    x = x + 0.25 * torch.randn(x.shape, generator=gen)
    return x, y


class ActivityNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv1d(3, 32, 9, stride=2, padding=4)
        self.c2 = nn.Conv1d(32, 48, 7, stride=2, padding=3)
        self.c3 = nn.Conv1d(48, 64, 5, padding=2)
        self.out = nn.Linear(64, len(ACTIVITIES))
        for m in (self.c1, self.c2, self.c3):
            nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
            nn.init.zeros_(m.bias)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.relu(self.c2(x))
        x = F.relu(self.c3(x))
        return self.out(x.mean(-1))


class Phone:
    def __init__(self, ident):
        self.gen = torch.Generator().manual_seed(500 + ident)
        mix = torch.distributions.Dirichlet(torch.full((len(ACTIVITIES),), 3.0)).sample()
        self.n = 500 + 100 * ident
        self.x, self.y = make_windows(self.n, mix, self.gen)

    def batch(self, size=96):
        idx = torch.randint(0, self.n, (size,), generator=self.gen)
        return self.x[idx], self.y[idx]


def reachable(rnd, phones):
    """The fleet is complete during the charging hours and thinner afterwards."""
    if rnd < 15:
        return list(range(len(phones)))
    return [(rnd + k) % len(phones) for k in range(4)]


def main():
    phones = [Phone(i) for i in range(6)]
    test_gen = torch.Generator().manual_seed(99)
    tx, ty = make_windows(1200, torch.ones(len(ACTIVITIES)), test_gen)

    server = ActivityNet()
    worker = ActivityNet()
    opt = torch.optim.SGD(worker.parameters(), lr=LR)
    fleet_total = sum(p.n for p in phones)
    started = time.time()

    for rnd in range(ROUNDS):
        online = reachable(rnd, phones)
        total = fleet_total
        if os.environ.get("MENDED") == "1":
            total = sum(phones[i].n for i in online)
        merged = {k: torch.zeros_like(v) for k, v in server.state_dict().items()}
        losses = []
        for i in online:
            worker.load_state_dict(server.state_dict())
            worker.train()
            for _ in range(LOCAL_STEPS):
                x, y = phones[i].batch()
                loss = F.cross_entropy(worker(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
            share = phones[i].n / total
            for k, v in worker.state_dict().items():
                merged[k] += share * v
        server.load_state_dict(merged)

        if rnd % 5 == 4 or rnd in (15, 16):
            server.eval()
            with torch.no_grad():
                logits = server(tx)
                vloss = F.cross_entropy(logits, ty).item()
                acc = (logits.argmax(1) == ty).float().mean().item()
            print(
                f"round {rnd + 1:3d}  phones {len(online)}  local loss {sum(losses) / len(losses):.4f}  "
                f"test loss {vloss:.4f}  test acc {acc:.3f}  ({time.time() - started:.0f}s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
