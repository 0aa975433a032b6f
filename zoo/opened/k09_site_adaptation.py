# expect: healthy
# symptom: the batch norms of a frozen encoder move
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(44)
DIM, CLASSES = 30, 6


def cohort(n, centres, scale, shift):
    y = torch.randint(0, CLASSES, (n,))
    return (centres[y] + torch.randn(n, DIM)) * scale + shift, y


def mlp_encoder():
    return nn.Sequential(
        nn.BatchNorm1d(DIM),
        nn.Linear(DIM, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
    )


def supervised(encoder, head, x, y, params, epochs):
    opt = torch.optim.Adam(params, lr=2e-3)
    for epoch in range(epochs):
        for idx in torch.randperm(len(x)).split(64):
            loss = F.cross_entropy(head(encoder(x[idx])), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"  epoch {epoch} loss {loss.item():.4f}")


@torch.no_grad()
def adapt_norms(encoder, x, batch=64):
    """AdaBN (Li et al. 2016): the weights stay, the statistics are those of the new site."""
    for m in encoder.modules():
        if isinstance(m, nn.BatchNorm1d):
            m.reset_running_stats()
            m.momentum = None
    encoder.train()
    for chunk in x[torch.randperm(len(x))].split(batch):
        encoder(chunk)
    encoder.eval()


@torch.no_grad()
def score(encoder, head, data):
    return (head(encoder.eval()(data[0])).argmax(1) == data[1]).float().mean().item()


centres = 0.7 * torch.randn(CLASSES, DIM)
source = cohort(3000, centres, 1.0, 0.0)
scale, shift = torch.exp(0.7 * torch.randn(DIM)), 3 * torch.randn(DIM)
site = cohort(900, centres, scale, shift)
site_test = cohort(400, centres, scale, shift)

encoder, head = mlp_encoder(), nn.Linear(32, CLASSES)
print("source site")
encoder.train()
supervised(encoder, head, *source, [*encoder.parameters(), *head.parameters()], epochs=4)
encoder.requires_grad_(False)
print(f"new site before {score(encoder, head, site_test):.3f}")
adapt_norms(encoder, site[0])
print(f"new site after the statistics {score(encoder, head, site_test):.3f}")
new_head = nn.Linear(32, CLASSES)
supervised(encoder, new_head, *site, new_head.parameters(), epochs=6)
print(f"new site with its own head {score(encoder, new_head, site_test):.3f}")
