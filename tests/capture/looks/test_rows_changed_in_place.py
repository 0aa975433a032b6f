"""Stored rows that reading them changes, read in the source."""

from __future__ import annotations

from rule_of_source import cases_of

RULE = "overwritten-rows"
SICK = {
    "a part is set to zero": """
        class D(Dataset):
            def __getitem__(self, i):
                x = self.rows[i]
                x[2:5] = 0
                return x
        """,
    "in a helper": """
        class D(Dataset):
            def mask(self, spec):
                spec[:, 2:5] = 0
                return spec
            def __getitem__(self, i):
                spec = self.specs[i]
                spec = self.mask(spec)
                return spec
        """,
    "given to a function": """
        def hide(ids, rng):
            ids[rng.random(len(ids)) < 0.2] = 4
            return ids
        class D(Dataset):
            def __getitem__(self, index):
                return hide(self.corpus[index], self.rng)
        """,
    "a method in place": """
        class D(Dataset):
            def __getitem__(self, i):
                image, label = self.images[i], self.labels[i]
                image.sub_(self.mean).div_(self.std)
                return image, label
        """,
    "a list that grows": """
        class D(Dataset):
            def __getitem__(self, i):
                row = self.rows[i]
                row.append(EOS)
                return torch.tensor(row)
        """,
    "in the collate function": """
        def collate(batch):
            for seq in batch:
                seq.append(EOS)
            return pad(batch)
        loader = DataLoader(rows, collate_fn=collate)
        """,
    "switched on": """
        class D(Dataset):
            def __init__(self, rows, augment=False):
                self.rows, self.augment = rows, augment
            def __getitem__(self, i):
                x = self.rows[i]
                if self.augment:
                    x *= 1.1
                return x
        train, val = D(rows, augment=True), D(others, augment=False)
        """,
}
HEALTHY = {
    "a copy": """
        class D(Dataset):
            def __getitem__(self, i):
                x = self.rows[i].clone()
                x[2:5] = 0
                return x
        """,
    "a cache": """
        class D(Dataset):
            def __getitem__(self, i):
                item = self.items[i]
                item["image"] = read(item["path"])
                return item["image"]
        """,
    "another tensor": """
        class D(Dataset):
            def __getitem__(self, i):
                x = self.rows[i] - self.mean
                x[2:5] = 0
                return x
        """,
    "paths": """
        class D(Dataset):
            def __getitem__(self, i):
                path = self.paths[i]
                path += ".png"
                return read(path)
        """,
    "switched off": """
        class D(Dataset):
            def __init__(self, rows, augment=False):
                self.rows, self.augment = rows, augment
            def __getitem__(self, i):
                x = self.rows[i]
                if self.augment:
                    x *= 1.1
                return x
        loader = DataLoader(D(rows, augment=False))
        """,
    "several rows": """
        class D(Dataset):
            def __getitem__(self, indices):
                x = self.rows[indices]
                x[2:5] = 0
                return x
        """,
    "a helper that copies": """
        class D(Dataset):
            def mask(self, spec):
                spec = spec.clone()
                spec[:, 2:5] = 0
                return spec
            def __getitem__(self, i):
                return self.mask(self.specs[i])
        """,
    "copied rows of a batch": """
        def collate(batch):
            batch = [list(seq) for seq in batch]
            for seq in batch:
                seq.append(EOS)
            return pad(batch)
        loader = DataLoader(rows, collate_fn=collate)
        """,
}

test_the_mistake, test_what_resembles_it = cases_of(RULE, SICK, HEALTHY)
