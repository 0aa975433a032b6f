"""Files that are paired by two listings, read in the source, and files that are not."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "two listings": """
        class Pairs(Dataset):
            def __init__(self, images, masks):
                self.images = os.listdir(images)
                self.masks = os.listdir(masks)
            def __getitem__(self, i):
                return load(self.images[i]), load(self.masks[i])
    """,
    "paths": """
        class Pairs(Dataset):
            def __init__(self, root):
                images = [root / one for one in os.listdir(root / "images")]
                masks = [root / one for one in os.listdir(root / "masks")]
                self.images = images
                self.masks = masks
            def __getitem__(self, index):
                image = read(self.images[index])
                mask = read(self.masks[index])
                return image, mask
    """,
    "of pathlib": """
        images = list(Path("images").glob("*.png"))
        masks = list(Path("masks").rglob("*.png"))
        for image, mask in zip(images, masks):
            rows.append((read(image), read(mask)))
    """,
}
HALF = {
    "one is sorted": """
        images = sorted(glob.glob("images/*.png"))
        labels = glob.glob("labels/*.png")
        pairs = list(zip(images, labels))
    """,
}
HEALTHY = {
    "both sorted": """
        class Pairs(Dataset):
            def __init__(self, images, masks):
                self.images = sorted(os.listdir(images))
                self.masks = sorted(os.listdir(masks))
            def __getitem__(self, i):
                return load(self.images[i]), load(self.masks[i])
    """,
    "sorted later": """
        class Pairs(Dataset):
            def __init__(self, images, masks):
                self.images = os.listdir(images)
                self.masks = os.listdir(masks)
                self.images.sort()
                self.masks.sort()
            def __getitem__(self, i):
                return load(self.images[i]), load(self.masks[i])
    """,
    "sorted on a line of its own": """
        images, masks = [], []
        images = os.listdir(a)
        masks = os.listdir(b)
        images = natsorted(images)
        masks = natsorted(masks)
        pairs = list(zip(images, masks))
    """,
    "one listing": """
        class Pairs(Dataset):
            def __init__(self, images, masks):
                self.images = os.listdir(images)
                self.masks = masks
            def __getitem__(self, i):
                name = self.images[i]
                return load(name), load(os.path.join(self.masks, name))
    """,
    "two domains": """
        class Unpaired(Dataset):
            def __init__(self, a, b):
                self.monet = os.listdir(a)
                self.photo = os.listdir(b)
            def __getitem__(self, i):
                return load(self.monet[i]), load(self.photo[i])
    """,
    "names that are compared": """
        class Pairs(Dataset):
            def __init__(self, images, masks):
                self.images = os.listdir(images)
                self.masks = os.listdir(masks)
            def __getitem__(self, i):
                assert stem(self.images[i]) == stem(self.masks[i])
                return load(self.images[i]), load(self.masks[i])
    """,
    "the number of masks": """
        class Pairs(Dataset):
            def __init__(self, images, masks):
                self.images = os.listdir(images)
                self.masks = os.listdir(masks)
            def __getitem__(self, i):
                return load(self.images[i]), load(self.images[i].replace("images", "masks"))
    """,
    "of one folder": """
        images = os.listdir(folder)
        masks = os.listdir(folder)
        pairs = list(zip(images, masks))
    """,
    "two scripts in one": """
        class Images(Dataset):
            def __init__(self, folder):
                self.images = os.listdir(folder)
            def __getitem__(self, i):
                return load(self.images[i])
        class Masks(Dataset):
            def __init__(self, folder):
                self.masks = os.listdir(folder)
            def __getitem__(self, i):
                return load(self.masks[i])
    """,
}


def found(source: str) -> list[str]:
    rules = ("half-sorted", "unsorted-listing")
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule in rules]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_a_listing_without_an_order(source: str) -> None:
    assert found(source) == ["unsorted-listing"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize("source", HALF.values(), ids=HALF)
def test_sorted_files_beside_unsorted_ones(source: str) -> None:
    assert found(source) == ["half-sorted"]
