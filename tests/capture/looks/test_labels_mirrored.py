"""Mirrored images whose class depends on the side, read in the source."""

from __future__ import annotations

from rule_of_source import cases_of

RULE = "mirrored-labels"
FLIP = """
        def __getitem__(self, i):
            image, label = self.images[i], self.labels[i]
            if random.random() < 0.5:
                image = image.flip(-1)
            return image, label
        """
SICK = {
    "arrows": f"""
        CLASSES = ["left", "right", "up"]
        {FLIP}
        """,
    "names of several words": f"""
        NAMES = {{0: "turn_left", 1: "turn_right", 2: "stop"}}
        {FLIP}
        """,
    "an Enum": f"""
        class Sign(Enum):
            LEFT = 0
            RIGHT = 1
        {FLIP}
        """,
    "a transform and digits": """
        train = datasets.MNIST("data", transform=Compose([RandomHorizontalFlip(), ToTensor()]))
        """,
    "a road to steer on": """
        def batch(frames, steering):
            flip = torch.rand(len(frames)) < 0.5
            frames = torch.where(flip[:, None, None], frames.flip(-1), frames)
            return frames, steering
        """,
    "rows that a draw chose": """
        LABELS = ("east", "west")
        def augment(x):
            chosen = torch.rand(len(x)) < 0.5
            x[chosen] = x[chosen].flip(-1)
            return x
        """,
    "up and down, flipped down": """
        WORDS = ["up", "down"]
        t = Compose([RandomVerticalFlip(p=0.5)])
        """,
}
HEALTHY = {
    "the label goes along": """
        CLASSES = ["left", "right"]
        def __getitem__(self, i):
            image, label = self.images[i], self.labels[i]
            if random.random() < 0.5:
                image, label = image.flip(-1), 1 - label
            return image, label
        """,
    "an angle is negated": """
        def __getitem__(self, i):
            frame, steering = self.rows[i]
            if random.random() < 0.5:
                frame = np.fliplr(frame)
                steering = -steering
            return frame, steering
        """,
    "a table of partners": """
        CLASSES = ["left", "right"]
        def augment(x, y):
            flip = torch.rand(len(x)) < 0.5
            x = torch.where(flip[:, None], x.flip(-1), x)
            return x, torch.where(flip, PARTNER[y], y)
        """,
    "photographs": f"""
        CLASSES = ["cat", "dog"]
        {FLIP}
        """,
    "the other axis": """
        CLASSES = ["left", "right"]
        t = Compose([RandomVerticalFlip()])
        """,
    "averaged over both at test time": """
        CLASSES = ["left", "right"]
        def predict(model, x):
            return model(x) + model(x.flip(-1))[:, [1, 0]]
        """,
    "whether it was flipped is returned": """
        CLASSES = ["left", "right"]
        def augment(x):
            flipped = random.random() < 0.5
            if flipped:
                x = x.flip(-1)
            return x, flipped
        """,
    "two sides of a search": """
        left, right = 0, len(x)
        padding_side = "left"
        t = Compose([RandomHorizontalFlip()])
        """,
}

test_finds, test_leaves = cases_of(RULE, SICK, HEALTHY)
