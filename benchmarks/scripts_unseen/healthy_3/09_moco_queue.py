# expect: healthy
# fault: a loss that rises at first (the queue fills), key encoder without gradients
# note: MoCo: the queue of negatives starts random and then holds hard ones, so InfoNCE rises before it falls.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


class MoCo(nn.Module):
    def __init__(self, make, dim=16, K=256, m=0.97, T=0.2):
        super().__init__()
        self.K, self.m, self.T, self.ptr = K, m, T, 0
        self.q, self.k = make(), make()
        self.k.load_state_dict(self.q.state_dict())
        for p in self.k.parameters():
            p.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(dim, K), dim=0))

    def forward(self, xq, xk):
        q = F.normalize(self.q(xq), dim=1)
        with torch.no_grad():
            for a, b in zip(self.k.parameters(), self.q.parameters()):
                a.mul_(self.m).add_(b, alpha=1 - self.m)
            k = F.normalize(self.k(xk), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone()], 1) / self.T
        self.queue[:, self.ptr : self.ptr + len(k)] = k.T
        self.ptr = (self.ptr + len(k)) % self.K
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


def main():
    torch.manual_seed(5)
    items = torch.randn(400, 20)
    model = MoCo(lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16)))
    opt = torch.optim.SGD(model.q.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    @torch.no_grad()
    def recall():
        g = torch.Generator().manual_seed(0)
        a = F.normalize(model.q(items + 0.4 * torch.randn(400, 20, generator=g)), dim=1)
        b = F.normalize(model.q(items + 0.4 * torch.randn(400, 20, generator=g)), dim=1)
        return ((a @ b.T).argmax(1) == torch.arange(400)).float().mean().item()

    print("recall", recall())
    for step in range(250):
        x = items[torch.randint(0, 400, (32,))]
        loss = model(x + 0.4 * torch.randn_like(x), x + 0.4 * torch.randn_like(x))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(step, round(loss.item(), 4), "recall", recall())
    print("recall", recall())


main()
