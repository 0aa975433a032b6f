"""One augmented data set for training and validation, read in the source."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "a transform": """
        full = ImageFolder(root, transform=Compose([RandomResizedCrop(64), RandomHorizontalFlip(), ToTensor()]))
        train_set, val_set = random_split(full, [0.8, 0.2])
        val_loader = DataLoader(val_set, 64)
        model.eval()
    """,
    "by a name": """
        augment = transforms.Compose([transforms.RandomRotation(20), transforms.ToTensor()])
        def loaders():
            data = Leaves(root, augment)
            train, test = torch.utils.data.random_split(data, [80, 20])
            return DataLoader(train, 32, shuffle=True), DataLoader(test, 32)
        with torch.no_grad():
            evaluate(model)
    """,
    "a row that draws": """
        class Digits(Dataset):
            def __getitem__(self, i):
                image = self.images[i]
                if torch.rand(()) < 0.5:
                    image = image.flip(-1)
                return image, self.labels[i]
        data = Digits()
        train = Subset(data, order[:80])
        valid = Subset(data, order[80:])
        for image, label in DataLoader(valid, 16):
            with torch.no_grad():
                model(image)
    """,
}
HEALTHY = {
    "two data sets": """
        train_full = ImageFolder(root, transform=Compose([RandomHorizontalFlip(), ToTensor()]))
        val_full = ImageFolder(root, transform=ToTensor())
        train_set = Subset(train_full, order[:80])
        val_set = Subset(val_full, order[80:])
        val_loader = DataLoader(val_set, 64)
        model.eval()
    """,
    "a transform that is replaced": """
        full = ImageFolder(root, transform=Compose([RandomHorizontalFlip(), ToTensor()]))
        train_set, val_set = random_split(full, [0.8, 0.2])
        val_set.dataset = copy.copy(full)
        val_set.dataset.transform = ToTensor()
        val_loader = DataLoader(val_set, 64)
        model.eval()
    """,
    "transforms after the split": """
        full = ImageFolder(root)
        train_set, val_set = random_split(full, [0.8, 0.2])
        train_set = Transformed(train_set, Compose([RandomHorizontalFlip(), ToTensor()]))
        val_set = Transformed(val_set, ToTensor())
        val_loader = DataLoader(val_set, 64)
        model.eval()
    """,
    "nothing that draws": """
        full = ImageFolder(root, transform=Compose([Resize(64), ToTensor()]))
        train_set, val_set = random_split(full, [0.8, 0.2])
        val_loader = DataLoader(val_set, 64)
        model.eval()
    """,
    "a switch of the data set": """
        class Digits(Dataset):
            def __getitem__(self, i):
                image = self.images[i]
                if self.augment and torch.rand(()) < 0.5:
                    image = image.flip(-1)
                return image, self.labels[i]
        train, val = random_split(Digits(), [80, 20])
        loader = DataLoader(val, 16)
        model.eval()
    """,
    "a part that is thrown away": """
        full = ImageFolder(root, transform=Compose([RandomHorizontalFlip(), ToTensor()]))
        train_set, _ = random_split(full, [0.1, 0.9])
        val_loader = DataLoader(ImageFolder(other), 64)
        model.eval()
    """,
    "without an evaluation": """
        full = ImageFolder(root, transform=Compose([RandomHorizontalFlip(), ToTensor()]))
        train_set, val_set = random_split(full, [0.8, 0.2])
        val_loader = DataLoader(val_set, 64)
    """,
    "two views": """
        full = ImageFolder(root, transform=Views(Compose([RandomResizedCrop(64), ToTensor()]), n_views=2))
        augment = Compose([RandomResizedCrop(64), ToTensor()])
        full = ImageFolder(root, transform=augment)
        train_set, val_set = random_split(full, [0.8, 0.2])
        loss = contrastive(model, DataLoader(val_set, 64))
        model.eval()
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "shared-augmentation"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_a_validation_that_augments(source: str) -> None:
    assert found(source) == ["shared-augmentation"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
