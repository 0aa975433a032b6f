"""Mistakes of axes and of targets that are read in the source of a script, and what resembles them."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SWAPPED = {
    "a picture": """
        def forward(self, pictures):
            b, h, w, c = pictures.shape
            return self.net(pictures.view(b, c, h, w))
    """,
    "sizes by the call": """
        def loss(logits, labels):
            return F.cross_entropy(logits.reshape(logits.size(0), logits.size(2), logits.size(1)), labels)
    """,
    "a copy of it": """
        b, t, f = x.size()
        x = x.contiguous().view((t, b, f))
    """,
}
KEPT = {
    "permuted before": """
        b, t, f = x.shape
        x = x.transpose(1, 2)
        x = x.reshape(b, f, t)
    """,
    "permuted in the same line": """
        b, t, f = x.shape
        y = x.transpose(1, 2).reshape(b, f, t)
    """,
    "merged": """
        b, t, f = x.shape
        y = x.view(b * t, f)
    """,
    "another tensor": """
        b, t, f = x.shape
        y = z.view(b, f, t)
    """,
}
BY_ROWS = {
    "a slice": """
        layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
        class Positions(nn.Module):
            def forward(self, x):
                return x + self.pe[: x.size(0)]
    """,
    "a count": """
        layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
        class Positions(nn.Module):
            def forward(self, ids):
                n, t = ids.shape
                x = self.embed(ids)
                return x + self.pos_emb(torch.arange(ids.shape[0]))
    """,
}
BY_PLACES = {
    "the second axis": """
        layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
        class Positions(nn.Module):
            def forward(self, x):
                return x + self.pe[:, : x.size(1)]
    """,
    "places first": """
        layer = nn.TransformerEncoderLayer(8, 2)
        class Positions(nn.Module):
            def forward(self, x):
                return x + self.pe[: x.size(0)]
    """,
    "exchanged before": """
        layer = nn.LSTM(8, 8, batch_first=True)
        class Positions(nn.Module):
            def forward(self, x):
                return x + self.pe[: x.size(0)]
        y = positions(x.transpose(0, 1))
    """,
}
LIVE = {
    "a bootstrapped target": """
        def update(batch):
            state, action, reward, nxt, done = batch
            target = reward + gamma * (1 - done) * q_net(nxt).max(1).values
            loss = F.mse_loss(q_net(state).gather(1, action), target)
    """,
    "an advantage": """
        def update(state, returns, log_prob):
            values = critic(state)
            advantage = returns - values
            loss = -(log_prob * advantage).mean()
    """,
    "projections": """
        for x in loader:
            p1, p2, z1, z2 = net(x, x)  # predictor
            predictor = net.predictor
            loss = closeness(p1, z2) + closeness(p2, z1)
    """,
}
STOPPED = {
    "without a gradient": """
        def update(batch):
            state, action, reward, nxt, done = batch
            with torch.no_grad():
                target = reward + gamma * (1 - done) * q_net(nxt).max(1).values
            loss = F.mse_loss(q_net(state).gather(1, action), target)
    """,
    "a target network": """
        def update(batch):
            state, action, reward, nxt, done = batch
            target = reward + gamma * (1 - done) * q_target(nxt).max(1).values
            loss = F.mse_loss(q_net(state).gather(1, action), target)
    """,
    "detached": """
        def update(state, returns, log_prob):
            values = critic(state)
            advantage = (returns - values).detach()
            loss = -(log_prob * advantage).mean() + advantage.pow(2).mean()
    """,
    "detached in the loss": """
        def update(state, returns, log_prob):
            advantage = returns - critic(state)
            loss = -(log_prob * advantage.detach()).mean() + advantage.pow(2).mean()
    """,
    "projections that are detached": """
        def forward(self, a, b):
            z1, z2 = self.encoder(a), self.encoder(b)
            return self.predictor(z1), self.predictor(z2), z1.detach(), z2.detach()
        for x in loader:
            p1, p2, z1, z2 = net(x, x)
            loss = closeness(p1, z2) + closeness(p2, z1)
    """,
    "projections of a copy, without a gradient": """
        def forward(self, a, b):
            pa, pb = self.predictor(self.online(a)), self.predictor(self.online(b))
            with torch.no_grad():
                ta, tb = self.target(a), self.target(b)
            return 2 - F.cosine_similarity(pa, tb).mean() - F.cosine_similarity(pb, ta).mean()
    """,
    "projections of a frozen copy": """
        def forward(self, a, b):
            p1, p2, z1, z2 = self.predictor(a), self.predictor(b), self.momentum_encoder(a), self.momentum_encoder(b)
            return closeness(p1, z2) + closeness(p2, z1)
    """,
    "two encoders": """
        for x, y in loader:
            a1, b2 = one(x), two(y)
            loss = closeness(a1, b2)
    """,
}

ALONE = {
    "by a coin": """
        def __getitem__(self, i):
            image, mask = self.images[i], self.masks[i]
            if random.random() < 0.5:
                image = np.flip(image, axis=1)
            return torch.from_numpy(image.copy())[None], torch.from_numpy(mask.copy())[None]
    """,
    "by drawn numbers": """
        def pair(image, mask):
            angle = random.uniform(-20, 20)
            image = rotate(image, angle)
            return {"image": image, "mask": mask}
    """,
}
ALONE["by a function of the script"] = """
        def turned(tensor, mirror):
            return tensor.flip(-1) if mirror else tensor
        def augment(img, mask):
            mirror = bool(torch.rand(1) < 0.5)
            img = turned(img, mirror)
            return img, mask
    """
ALONE["a target of segmentation"] = """
        class UNet(nn.Module):
            pass
        def some(t, mirrored):
            return torch.where(mirrored.view(-1, 1, 1, 1), t.flip(3), t)
        def augment(x, y, gen):
            mirrored = torch.rand(len(x), generator=gen) < 0.5
            gain = 1 + 0.1 * torch.randn(len(x), 1, 1, 1)
            x = some(x * gain, mirrored)
            return x, y
    """
BESIDE = {
    "a class of images": """
        class Classifier(nn.Module):
            pass
        def some(t, mirrored):
            return torch.where(mirrored.view(-1, 1, 1, 1), t.flip(3), t)
        def augment(x, y, gen):
            mirrored = torch.rand(len(x), generator=gen) < 0.5
            x = some(x, mirrored)
            return x, y
    """,
    "both by a function of the script": """
        def turned(tensor, mirror):
            return tensor.flip(-1) if mirror else tensor
        def augment(img, mask):
            mirror = bool(torch.rand(1) < 0.5)
            img = turned(img, mirror)
            mask = turned(mask, mirror)
            return img, mask
    """,
    "both": """
        def __getitem__(self, i):
            image, mask = self.images[i], self.masks[i]
            if random.random() < 0.5:
                image, mask = np.flip(image, 1), np.flip(mask, 1)
            return image, mask
    """,
    "a class": """
        def __getitem__(self, i):
            image, label = self.images[i], self.labels[i]
            if random.random() < 0.5:
                image = np.flip(image, axis=1)
            return image, label
    """,
    "a mask of padding": """
        def __getitem__(self, i):
            tokens, mask = self.tokens[i], self.masks[i]
            tokens = tokens.roll(random.randint(0, 3))
            return tokens, mask
    """,
    "brighter": """
        def __getitem__(self, i):
            image, mask = self.images[i], self.masks[i]
            image = image * random.uniform(0.8, 1.2)
            return image, mask
    """,
    "not at random": """
        def __getitem__(self, i):
            image, mask = read(i)
            return crop(image), mask
    """,
}
WRONG = [("swapped-sizes", SWAPPED), ("row-positions", BY_ROWS), ("live-target", LIVE), ("moved-alone", ALONE)]
RIGHT = [KEPT, BY_PLACES, STOPPED, BESIDE]


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {"MASKED": False})]


@pytest.mark.parametrize(
    ("rule", "source"), [pytest.param(rule, one, id=name) for rule, cases in WRONG for name, one in cases.items()]
)
def test_a_mistake_is_found(rule: str, source: str) -> None:
    assert set(found(source)) == {rule}


@pytest.mark.parametrize("source", [pytest.param(one, id=name) for cases in RIGHT for name, one in cases.items()])
def test_what_resembles_it_is_not(source: str) -> None:
    assert found(source) == []
