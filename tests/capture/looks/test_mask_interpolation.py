"""Masks of classes that are interpolated, read in the source, and masks that are not."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "torchvision": """
        image = TF.resize(image, (256, 256))
        mask = TF.resize(mask, (256, 256))
        mask = torch.as_tensor(np.array(mask)).long()
    """,
    "a tensor": """
        mask = F.interpolate(mask[None, None].float(), size=(64, 64), mode="bilinear")[0, 0]
        return_value = mask.long()
    """,
    "at once": """
        target_mask = F.interpolate(mask.float(), scale_factor=2, mode="bicubic").squeeze(1).long()
    """,
    "cv2": """
        mask = cv2.resize(mask, (256, 256))
        mask = torch.from_numpy(mask).to(torch.int64)
    """,
    "cv2, told": """
        mask = cv2.resize(mask, (256, 256), interpolation=cv2.INTER_LINEAR)
        mask = mask.astype(np.int64)
    """,
    "a transform of both": """
        class Pairs:
            def __init__(self):
                self.resize = transforms.Compose([transforms.Resize(256), transforms.ToTensor()])
            def __getitem__(self, i):
                image, mask = load(i)
                mask = self.resize(mask)
                return self.resize(image), mask.long()
    """,
    "an image of grey": """
        mask = Image.open(path).convert("L")
        mask = mask.resize((256, 256))
        mask = np.array(mask).astype("int64")
    """,
    "a rotation, told": """
        seg = TF.rotate(seg, angle, interpolation=InterpolationMode.BILINEAR)
        seg = torch.tensor(np.array(seg), dtype=torch.long)
    """,
    "integers in the loop": """
        def pair(i):
            mask = scipy.ndimage.zoom(masks[i], 0.5)
            return image, mask
        for image, mask in loader:
            loss = F.cross_entropy(model(image), mask.long())
    """,
}
HEALTHY = {
    "the nearest": """
        mask = TF.resize(mask, (256, 256), interpolation=InterpolationMode.NEAREST)
        mask = torch.as_tensor(np.array(mask)).long()
    """,
    "the nearest, by cv2": """
        mask = cv2.resize(mask, (256, 256), interpolation=cv2.INTER_NEAREST).astype(np.int64)
    """,
    "by default": """
        mask = F.interpolate(mask[None].float(), size=64).long()
    """,
    "a rotation by default": """
        mask = np.array(TF.rotate(mask, 30)).astype(np.int64)
    """,
    "a threshold after it": """
        mask = cv2.resize(mask, (256, 256))
        mask = (mask > 127).astype(np.int64)
    """,
    "a threshold on its own line": """
        mask = TF.resize(mask, 256)
        mask[mask > 0.5] = 1
        mask = mask.long()
    """,
    "two classes": """
        mask = np.where(labels == 3, 1, 0).astype(np.uint8)
        mask = cv2.resize(mask, (64, 64))
        mask = torch.tensor(mask).long()
    """,
    "a loss of two classes": """
        mask = cv2.resize(mask, (64, 64))
        mask = torch.tensor(mask).long()
        loss = F.binary_cross_entropy_with_logits(scores, mask.float())
    """,
    "a soft mask": """
        soft_mask = TF.resize(soft_mask, 256)
        ids = mask.long()
    """,
    "no integers": """
        mask = TF.resize(mask, 256)
        loss = F.binary_cross_entropy_with_logits(model(image), mask)
    """,
    "the image alone": """
        image = TF.resize(image, 256)
        mask = mask.long()
    """,
    "an image of a palette": """
        mask = Image.open(path)
        mask = mask.resize((256, 256))
        mask = np.array(mask).astype("int64")
    """,
    "an image of a palette, by torchvision": """
        mask = Image.open(path)
        mask = TF.resize(mask, 256)
        mask = torch.as_tensor(np.array(mask)).long()
    """,
    "shares of classes": """
        masks = F.interpolate(masks, size=64, mode="bilinear")
        masks = masks.argmax(1)
        loss = F.cross_entropy(scores, masks.long())
    """,
    "a mode that is given": """
        mask = F.interpolate(mask, size, mode=mode).long()
        mask = TF.resize(mask, size, interpolation=self.mode)
    """,
    "types that know": """
        mask = tv_tensors.Mask(mask)
        mask = TF.resize(mask, 256)
        mask = mask.long()
    """,
    "a library that knows": """
        transform = A.Compose([A.Resize(256, 256)])
        both = transform(image=image, mask=mask)
        mask = both["mask"].long()
    """,
    "splines of no order": """
        mask = ndimage.zoom(mask, 0.5, order=0).astype(int)
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "smoothed-mask"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_a_mask_that_is_interpolated(source: str) -> None:
    assert found(source) == ["smoothed-mask"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
