"""Images of OpenCV into a pretrained model, read in the source."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "into a model with weights": """
        class Rows(Dataset):
            def __getitem__(self, i):
                image = cv2.imread(self.paths[i])
                return torch.tensor(image).permute(2, 0, 1) / 255
        model = resnet18(weights="DEFAULT")
    """,
    "pretrained": """
        image = cv2.resize(cv2.imread(path, cv2.IMREAD_COLOR), (224, 224))
        model = timm.create_model("resnet18", pretrained=True)
    """,
}
HEALTHY = {
    "converted": """
        image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
        model = resnet18(weights="DEFAULT")
    """,
    "turned by a slice": """
        image = cv2.imread(path)[:, :, ::-1]
        model = resnet18(weights="DEFAULT")
    """,
    "turned by an index": """
        image = cv2.imread(path)
        image = image[..., [2, 1, 0]]
        model = resnet18(weights="DEFAULT")
    """,
    "from scratch": """
        image = cv2.imread(path)
        model = resnet18(weights=None)
    """,
    "grey": """
        image = cv2.imread(path, 0)
        model = resnet18(weights="DEFAULT")
    """,
    "a mask": """
        mask = cv2.imread(path)
        model = resnet18(weights="DEFAULT")
    """,
    "means of another model": """
        image = cv2.imread(path) - np.array([103.939, 116.779, 123.68])
        model = vgg16(weights="caffe")
    """,
    "classes that are weighed": """
        image = cv2.imread(path)
        loss = nn.CrossEntropyLoss(weights=weights)
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "swapped-channels"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_blue_where_red_is_meant(source: str) -> None:
    assert found(source) == ["swapped-channels"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
