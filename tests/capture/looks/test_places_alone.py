"""Boxes and points beside an image that is moved at random, read in the source."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "a flip": """
        def __getitem__(self, i):
            image, boxes = self.images[i], self.boxes[i]
            if random.random() < 0.5:
                image = image.flip(-1)
            return image, boxes
    """,
    "a transform that draws": """
        transform = Compose([RandomHorizontalFlip(), ToTensor()])
        class Rows(Dataset):
            def __getitem__(self, i):
                image = self.transform(load(i))
                boxes = torch.tensor(self.boxes[i])
                return image, boxes
        rows = Rows(transform=transform)
    """,
    "in a mapping": """
        def __getitem__(self, i):
            image = load(i)
            boxes = self.boxes[i]
            if torch.rand(1) < 0.5:
                image = TF.hflip(image)
            boxes = torch.as_tensor(boxes)
            target = {"boxes": boxes, "labels": self.labels[i]}
            return image, target
    """,
    "key points": """
        def augment(image, keypoints):
            if np.random.rand() < 0.5:
                image = np.fliplr(image).copy()
            return image, keypoints
    """,
}
SICK["a class of transforms, short names"] = """
        class RandomHorizontalFlip:
            def __call__(self, img, pts):
                if self.rng.random() < self.p:
                    img = img.flip(-1)
                return img, pts
    """
SICK["a flip by indices"] = """
        def augment(self, img, box):
            img = img * self.rng.uniform(0.8, 1.2)
            if self.rng.random() < 0.5:
                img = img[:, :, ::-1]
            return np.ascontiguousarray(img), box
    """
SICK["a short name"] = """
        def augment(self, im, box):
            im = im * float(self.rng.uniform(0.8, 1.2))
            if self.rng.random() < 0.5:
                im = im.flip(-1)
            return im, box
    """
SICK["a flip by indices, drawn before"] = """
        def augment(image, boxes):
            mirror = random.randint(0, 1)
            if mirror:
                image = image[:, ::-1].copy()
            return image, boxes
    """
HEALTHY = {
    "channels in another order": """
        def load(image, boxes):
            image = image[:, :, ::-1] * random.uniform(0.8, 1.2)
            return image, boxes
    """,
    "by indices, with its boxes": """
        def augment(image, boxes):
            if random.random() < 0.5:
                image = image[:, ::-1]
                boxes[:, [0, 2]] = image.shape[1] - boxes[:, [2, 0]]
            return image, boxes
    """,
    "moved by arithmetic": """
        def augment(image, boxes):
            if random.random() < 0.5:
                image = image.flip(-1)
                boxes[:, [0, 2]] = 1 - boxes[:, [2, 0]]
            return image, boxes
    """,
    "moved by a copy": """
        def augment(image, boxes):
            if random.random() < 0.5:
                image, flipped = image.flip(-1), boxes.clone()
                flipped[:, 0] = 1 - boxes[:, 2]
                boxes = flipped
            return image, boxes
    """,
    "moved by a function": """
        def augment(image, boxes):
            if random.random() < 0.5:
                image = image.flip(-1)
                boxes = flip_boxes(boxes)
            return image, boxes
    """,
    "moved in place": """
        def augment(image, boxes):
            if random.random() < 0.5:
                image = image.flip(-1)
                flip_in_place(boxes)
            return image, boxes
    """,
    "stacked anew": """
        def __getitem__(self, i):
            image, boxes = self.images[i], self.boxes[i]
            if random.random() < 0.5:
                image = image.flip(-1)
                boxes = torch.stack([1 - boxes[2], boxes[1], 1 - boxes[0], boxes[3]])
            return image, boxes
    """,
    "made of numbers that were moved": """
        def __getitem__(self, i):
            image, (left, top, right, bottom) = load(i)
            if random.random() < 0.5:
                image = image.flip(-1)
                left, right = 1 - right, 1 - left
            boxes = torch.tensor([left, top, right, bottom])
            return image, boxes
    """,
    "moved under another name": """
        def __getitem__(self, i):
            image, rows = load(i)
            if random.random() < 0.5:
                image = image.flip(-1)
                rows[:, 0] = 1 - rows[:, 2]
            boxes = torch.tensor(rows)
            return image, boxes
    """,
    "one after the other": """
        def augment(image, boxes):
            if random.random() < 0.5:
                image = image.flip(-1)
                for one in boxes:
                    one[0], one[2] = 1 - one[2], 1 - one[0]
            return image, boxes
    """,
    "given both": """
        def __getitem__(self, i):
            image, boxes = self.images[i], self.boxes[i]
            if random.random() < 0.5:
                out = self.flip(image=image, bboxes=boxes)
                image, boxes = out["image"], out["bboxes"]
            return image, boxes
    """,
    "read after the draw": """
        def __getitem__(self, i):
            turned = random.random() < 0.5
            image = self.images[i]
            if turned:
                image = image.flip(-1)
            boxes = self.turned[i] if turned else self.boxes[i]
            return image, boxes
    """,
    "a change of colours": """
        def augment(image, boxes):
            if random.random() < 0.5:
                image = jitter(image)
            return image, boxes
    """,
    "not at random": """
        def load(i):
            image = upside_down[i].flip(-2)
            boxes = table[i]
            return image, boxes
    """,
    "labels of the whole image": """
        def augment(image, label):
            if random.random() < 0.5:
                image = image.flip(-1)
            return image, label
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "places-alone"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_an_image_moved_without_them(source: str) -> None:
    assert found(source) == ["places-alone"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
