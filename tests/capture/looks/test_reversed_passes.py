from __future__ import annotations

from rule_of_source import cases_of

SICK = {
    "a codebook": """
        import torch

        class Codebook(torch.nn.Module):
            def forward(self, z):
                idx = torch.cdist(z, self.codes).argmin(1)
                q = self.codes[idx]
                return q + (z - q).detach(), idx
    """,
    "a look-up that is permuted, and assigned to itself": """
        def forward(self, z):
            q = self.lookup(self.nearest(z)).permute(0, 3, 1, 2)
            q = (
                q + (z - q).detach()
            )
            return q
    """,
    "a table of any name": """
        import torch

        def forward(z, words):
            places = torch.cdist(z, words.weight).argmin(1).view(-1)
            q = words(places)
            return q + (z - q).detach()
    """,
    "in a term of the loss": """
        def loss(self, x, mse, parts):
            z = self.encoder(x)
            z_q = z.round()
            return mse(self.decoder(z_q + (z - z_q).detach()), x) + parts
    """,
    "in other words": """
        import torch

        def rounded(x):
            y = torch.round(x * 4) / 4
            return x.detach() - y.detach() + y
    """,
    "by methods": """
        def forward(x):
            w = x.sign()
            return w.add(x.sub(w).detach())
    """,
    "by subtraction": """
        def forward(self, e):
            e_hat = self.embed(self.distances(e).argmin(-1))
            return e_hat - (e_hat - e).detach()
    """,
    "in two statements": """
        def forward(x):
            spikes = (x > 0).float()
            gap = (x - spikes).detach()
            return spikes + gap
    """,
    "without a graph": """
        import torch

        def forward(w, scale):
            binary = torch.where(w >= 0, scale, -scale)
            with torch.no_grad():
                gap = w - binary
            return binary + gap
    """,
    "of the data": """
        import torch

        def forward(x):
            picked = torch.nn.functional.one_hot(x.argmax(-1), 4).float()
            return picked + (x.data - picked.data)
    """,
    "in a function that says so": """
        def straight_through(z, q):
            return q + (z - q).detach()
    """,
    "by its name": """
        def forward(self, z):
            z_q = self.book(z)[0]
            quantized, loss = self.book(z)
            return quantized + (z - quantized).detach(), loss
    """,
    "codes of a table, by a product": """
        import torch

        def forward(z, table):
            hot = torch.nn.functional.one_hot((z @ table.t()).argmax(1), 32).float()
            q = hot @ table
            return (z - q).detach() + q
    """,
    "the sign turned around": """
        import torch

        def pick(logits):
            soft = logits.softmax(-1)
            hard = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1.0)
            return hard - soft + soft.detach()
    """,
    "the sign turned around, in another order": """
        def pick(y, y_soft, y_hard):
            return y_soft.detach() + (y_hard - y_soft)
    """,
}
HEALTHY = {
    "the right way": """
        import torch

        class Codebook(torch.nn.Module):
            def forward(self, z):
                idx = torch.cdist(z, self.codes).argmin(1)
                q = self.codes[idx]
                return z + (q - z).detach(), idx
    """,
    "the right way of a one-hot choice": """
        import torch

        def pick(logits):
            soft = logits.softmax(-1)
            hard = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1.0)
            return hard - soft.detach() + soft

        def other(soft, hard):
            return (hard - soft).detach() + soft
    """,
    "by subtraction": """
        import torch

        def forward(x):
            t = torch.tanh(x)
            return t - (t - torch.round(t * 4) / 4).detach()
    """,
    "by methods": """
        import torch

        def forward(self, z):
            with torch.no_grad():
                picked = self.codes[torch.cdist(z, self.codes).argmin(1)]
            return picked.add(z.sub(z.detach()))
    """,
    "without a graph": """
        import torch

        def forward(self, w):
            with torch.no_grad():
                scale = w.abs().mean()
                gap = torch.where(w >= 0, scale, -scale) - w
            return w + gap
    """,
    "assigned to itself": """
        def forward(self, z):
            z_q = self.embedding(self.distances(z).argmin(1)).view(z.shape)
            loss = (z_q.detach() - z).square().mean()
            z_q = z + (z_q - z).detach()
            return z_q, loss
    """,
    "a value with the gradient of what it is made of": """
        def bounded(quantized):
            return quantized + (quantized.clamp(0, 1) - quantized).detach()

        def ste_clamp(q):
            bound = q.clamp(0, 1)
            return q + (bound - q).detach()
    """,
    "both are discrete": """
        def forward(codes, x):
            codes = codes.round()
            other = x.round()
            return codes + (other - codes).detach()
    """,
    "neither is": """
        def target(q, reward, following):
            return q + (reward + following - q).detach()

        def average(mean, x):
            return mean + (x - mean).detach()
    """,
    "a surrogate of spikes": """
        import torch

        def spike(v):
            fired = (v > 1.0).float()
            surrogate = torch.sigmoid(5 * (v - 1))
            return (fired - surrogate).detach() + surrogate
    """,
    "a gradient that is reversed": """
        def reverse(x, strength):
            return (1 + strength) * x.detach() - strength * x

        def minus(x, y):
            return y - x + x.detach()
    """,
    "scaled gradients": """
        def scaled(x, hard):
            y = x * 0.1
            return y + (x - y).detach()
    """,
    "weights that a mask prunes": """
        def forward(w, threshold):
            kept = w * (w.abs() > threshold).float()
            return kept + (w - kept).detach()
    """,
    "no gradient at all": """
        import torch

        @torch.no_grad()
        def shown(z, z_q):
            return z_q + (z - z_q).detach()
    """,
    "what a network makes of a choice": """
        def forward(net, z, x):
            h = net(x.argmax(1))
            g = net(z, x.argmin(1))
            return h + (z - h).detach(), g + (z - g).detach()
    """,
    "losses of a codebook": """
        import torch.nn.functional as F

        def losses(z, z_q):
            return F.mse_loss(z_q, z.detach()) + 0.25 * F.mse_loss(z, z_q.detach())
    """,
}

test_finds, test_leaves = cases_of("reversed-straight-through", SICK, HEALTHY)
