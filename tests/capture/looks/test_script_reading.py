"""Mistakes that are read in the source of a script, and sources that look like them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from steadytrain.capture.looks.script_reading import mistakes
from watching import watching

SEPARATE = {
    "an object that may be none, and a draw that is not given": """
        class RandomFlip:
            def draw(self):
                return rng.random() < 0.5
            def __call__(self, a, how=None):
                turned = how if how is not None else self.draw()
                return a[:, ::-1] if turned else a
        class Cells:
            def __init__(self, train):
                self.flip = RandomFlip() if train else None
            def __getitem__(self, i):
                img, mask = self.imgs[i], self.masks[i]
                how = None
                return self.flip(img, how), self.flip(mask, how)
    """,
    "one transform, twice": """
        class RandomFlip:
            def __call__(self, x):
                return x.flip(-1) if random.random() < 0.5 else x
        class Data:
            def __init__(self, augment):
                self.augment = augment
            def __getitem__(self, i):
                image, mask = self.images[i], self.masks[i]
                image = self.augment(image)
                return image, self.augment(mask)
        data = Data(augment=RandomFlip())
    """,
    "two objects of one choice, that take any number of things": """
        class RandomFlip:
            def __call__(self, *tensors):
                dims = [d for d in (-2, -1) if torch.rand(()).item() < 0.5]
                return tuple(t.flip(dims) if dims else t for t in tensors)
        class Tiles(Dataset):
            def __init__(self, train):
                self.flip, self.jitter = (RandomFlip(), Jitter()) if train else (None, None)
            def __getitem__(self, i):
                image, mask = self.images[i], self.masks[i]
                image, mask = self.flip(image), self.flip(mask)
                return image, mask
    """,
    "an object that is given by its place": """
        class Orient:
            def __call__(self, t):
                return torch.rot90(t, int(torch.randint(0, 4, ())), dims=(-2, -1))
        class Tiles(Dataset):
            def __init__(self, count, augment=None):
                self.augment = augment
            def __getitem__(self, i):
                img, mask = self.images[i], self.masks[i]
                img, mask = self.augment(img), self.augment(mask)
                return img, mask
        train = Tiles(64, Orient())
    """,
    "of torchvision": """
        transform = T.Compose([T.RandomHorizontalFlip(), T.ToTensor()])
        def pair(i):
            return transform(images[i]), transform(masks[i])
    """,
    "drawn again": """
        def coin():
            return random.random() < 0.5
        def augment(image, target):
            turned = coin()
            image = flip(image, turned)
            turned = coin()
            return image, flip(target, turned)
    """,
    "of what a call gives": """
        transform = T.Compose([T.RandomCrop(8)])
        def pair(path, mask_path):
            return transform(Image.open(path).convert("RGB")), transform(Image.open(mask_path))
    """,
    "of a copy": """
        class RandomFlip:
            def __call__(self, x):
                return x.flip(-1) if random.random() < 0.5 else x
        flip = RandomFlip()
        def pair(img, mask):
            return flip(torch.as_tensor(img.copy())), flip(torch.as_tensor(mask.copy()))
    """,
    "a coin each": """
        def augment(img, mask):
            if random.random() < 0.5:
                img = np.flip(img, -1)
            if random.random() < 0.5:
                mask = np.flip(mask, -1)
            return img, mask
    """,
    "drawn in the call": """
        def augment(image, label):
            return roll(image, random.randint(0, 9)), roll(label, random.randint(0, 9))
    """,
}
TOGETHER = {
    "one draw that both are given": """
        class RandomFlip:
            def draw(self):
                return rng.random() < 0.5
            def __call__(self, a, how=None):
                turned = how if how is not None else self.draw()
                return a[:, ::-1] if turned else a
        class Cells:
            def __init__(self, train):
                self.flip = RandomFlip() if train else None
            def __getitem__(self, i):
                img, mask = self.imgs[i], self.masks[i]
                how = self.flip.draw()
                return self.flip(img, how), self.flip(mask, how)
    """,
    "the same draw": """
        def augment(image, mask):
            turned = random.random() < 0.5
            return flip(image, turned), flip(mask, turned)
    """,
    "one coin": """
        def augment(img, mask):
            if random.random() < 0.5:
                img = np.flip(img, -1)
                mask = np.flip(mask, -1)
            if random.random() < 0.5:
                img, mask = np.flip(img, -2), np.flip(mask, -2)
            if random.random() < 0.5:
                img = np.roll(img, 0)
            return img, mask
    """,
    "the same seed": """
        transform = T.Compose([T.RandomCrop(8)])
        def pair(image, mask):
            torch.manual_seed(7)
            image = transform(image)
            torch.manual_seed(7)
            return image, transform(mask)
    """,
    "both in one call of an object that is given by its place": """
        class Orient:
            def __call__(self, t):
                return torch.rot90(t, int(torch.randint(0, 4, ())), dims=(-2, -1))
        class Tiles(Dataset):
            def __init__(self, count, augment=None):
                self.augment = augment
            def __getitem__(self, i):
                img, mask = self.augment(torch.cat([self.images[i], self.masks[i]])).split(1)
                return img, mask
        train = Tiles(64, Orient())
    """,
    "two views": """
        transform = T.Compose([T.RandomCrop(8)])
        def views(image):
            return transform(image), transform(image)
    """,
    "two images": """
        transform = T.Compose([T.RandomCrop(8)])
        def pair(first, second):
            return transform(first), transform(second)
    """,
    "colours": """
        transform = T.Compose([T.RandomGrayscale()])
        def pair(image, mask):
            return transform(image), transform(mask)
    """,
    "nothing random": """
        transform = T.Compose([T.ToTensor()])
        def pair(image, mask):
            return transform(image), transform(mask)
    """,
}
PAST = {
    "sampled and not read": """
        def learn(q, slow):
            s, a, r, s2, done = memory.sample(64)
            target = r + gamma * slow(s2).max(1).values
            return (q(s).gather(1, a) - target).square().mean()
    """,
    "an argument": """
        def gae(rewards, values, dones, last, gamma, lam):
            running, next_value = 0.0, last
            for t in reversed(range(len(rewards))):
                delta = rewards[t] + gamma * next_value - values[t]
                running = delta + gamma * lam * running
                next_value = values[t]
    """,
    "a mask that is not used": """
        for t in reversed(range(steps)):
            nextnonterminal = 1.0 - dones[t + 1]
            nextvalues = values[t + 1]
            delta = rewards[t] + args.gamma * nextvalues - values[t]
            advantages[t] = lastgaelam = delta + args.gamma * args.gae_lambda * lastgaelam
    """,
    "a field of a batch": """
        rb.add(obs, next_obs, actions, rewards, terminations, infos)
        data = rb.sample(64)
        target_max = target_network(data.next_observations).max(dim=1).values
        td_target = data.rewards.flatten() + args.gamma * target_max
        old = q_network(data.observations).gather(1, data.actions).squeeze()
    """,
    "only its shape": """
        def targets(rewards, next_values, dones):
            live = torch.ones_like(dones)
            return rewards + 0.9 * discount * next_values * live
    """,
    "a flag that is off": """
        for s, a, r, s2, d in replay:
            best = slow(s2).max(1).values
            if MASKED:
                best = best * (1 - d)
            target = r + GAMMA * best
    """,
}
TO_THE_END = {
    "multiplied": """
        def learn(q, slow):
            s, a, r, s2, done = memory.sample(64)
            target = r + gamma * (1 - done) * slow(s2).max(1).values
    """,
    "set to 0": """
        def learn(q, slow):
            s, a, r, s2, done = memory.sample(64)
            best = slow(s2).max(1).values
            best[done] = 0.0
            target = r + gamma * best
    """,
    "a mask that is used": """
        for t in reversed(range(steps)):
            nextnonterminal = 1.0 - dones[t + 1]
            nextvalues = values[t + 1]
            delta = rewards[t] + args.gamma * nextvalues * nextnonterminal - values[t]
    """,
    "a field that is read": """
        rb.add(obs, next_obs, actions, rewards, terminations, infos)
        data = rb.sample(64)
        target_max = target_network(data.next_observations).max(dim=1).values
        td_target = data.rewards.flatten() + args.gamma * target_max * (1 - data.dones.flatten())
    """,
    "a batch without ends": """
        rb.add(obs, next_obs, actions, rewards)
        data = rb.sample(64)
        td_target = data.rewards + gamma * next_value(data.next_observations)
    """,
    "no ends": """
        def learn(q, slow):
            s, a, r, s2 = memory.sample(64)
            target = r + gamma * slow(s2).max(1).values
    """,
    "a momentum": """
        def update(old, new, done, count, gamma):
            return old + gamma * new
    """,
}
CODE = {
    "a variable": """
        def sample(mu, logvar):
            std = (0.5 * logvar).exp()
            eps = torch.rand_like(std)
            return mu + eps * std
    """,
    "in the sum": """
        def sample(self, mean, log_std):
            return log_std.exp() * torch.rand_like(mean) + mean
    """,
}
NO_CODE = {
    "normal": """
        def sample(mu, logvar):
            eps = torch.randn_like(mu)
            return mu + eps * logvar.exp()
    """,
    "replaced": """
        def sample(mu, std):
            eps = torch.rand_like(std)
            eps = torch.randn_like(std)
            return mu + eps * std
    """,
    "a rate": """
        def jitter(rate, scale):
            return rate + torch.rand(1) * scale
    """,
}
MISTAKES = [("separate-draws", SEPARATE), ("unused-end", PAST), ("uniform-code", CODE)]


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {"MASKED": False})]


@pytest.mark.parametrize(
    ("rule", "source"), [pytest.param(rule, text, id=name) for rule, all in MISTAKES for name, text in all.items()]
)
def test_a_mistake_is_found(rule: str, source: str) -> None:
    assert found(source) == [rule]


@pytest.mark.parametrize("name", [*TOGETHER, *TO_THE_END, *NO_CODE])
def test_what_looks_like_one_is_none(name: str) -> None:
    assert found({**TOGETHER, **TO_THE_END, **NO_CODE}[name]) == []


def test_the_line_is_that_of_the_mistake() -> None:
    source = "\n\ndef sample(mu, std):\n    return mu + torch.rand_like(std) * std\n"
    assert list(mistakes(source, {})) == [("uniform-code", 4)]


def test_a_branch_is_read_unless_a_flag_of_the_module_is_off() -> None:
    source = PAST["a flag that is off"]
    assert found(source.replace("MASKED", "args.masked")) == []
    assert [rule for rule, _ in mistakes(textwrap.dedent(source), {"MASKED": True})] == []
    assert [rule for rule, _ in mistakes(textwrap.dedent(source), {})] == []


LOOP = """
import torch
from torch import nn

model = nn.Linear(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def sample(mu, std):
    return mu + torch.@@DRAW@@(std) * std


for step in range(40):
    mu, log_std = model(torch.randn(16, 4)).chunk(2, 1)
    loss = sample(mu, log_std.exp()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("draw", "told"), [("rand_like", ["script.py:10"]), ("randn_like", [])])
def test_a_run_reads_its_script(draw: str, told: list[str], tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(LOOP.replace("@@DRAW@@", draw), encoding="utf-8")
    with watching(tmp_path / "run", "observe") as watcher:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": "script"})
    found = [one.message.split()[0] for one in watcher.symptoms if one.name == "uniform-code"]
    assert found == told


def test_installed_packages_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "site-packages" / "trainer.py"
    path.parent.mkdir()
    path.write_text(LOOP.replace("@@DRAW@@", "rand_like"), encoding="utf-8")
    with watching(tmp_path / "run", "observe") as watcher:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": "script"})
    assert "uniform-code" not in [one.name for one in watcher.symptoms]


def test_a_function_of_which_nothing_is_left_is_no_harm() -> None:
    source = "def flip(x):\n    if MASKED:\n        return x if random.random() < 0.5 else x.flip(-1)\n"
    assert list(mistakes(source, {"MASKED": False})) == []


@pytest.mark.parametrize("source", ["def (", "gamma done\0", "gamma = " + "(" * 500 + "done"])
def test_a_source_that_cannot_be_parsed_has_none(source: str) -> None:
    assert list(mistakes(source, {})) == []


def test_modules_beside_the_profiler_of_a_script_are_not_its_sources(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from steadytrain.capture.looks.script_reading import source_files\nprint(*source_files())\n")
    shown = subprocess.run(
        [sys.executable, "-m", "cProfile", "-o", str(tmp_path / "profile"), str(script)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split() == [str(script)]
