from __future__ import annotations

from rule_of_source import cases_of

SICK = {
    "gathered": """
        import torch
        import torch.distributed as dist
        import torch.nn.functional as F

        def clip_loss(image, text, scale):
            rank = dist.get_rank()
            text_all = gather(text)
            labels = torch.arange(image.size(0), device=image.device)
            return F.cross_entropy(scale * image @ text_all.T, labels)
    """,
}
HEALTHY = {
    "offset": """
        import torch
        import torch.distributed as dist
        import torch.nn.functional as F

        def clip_loss(image, text, scale):
            text_all = gather(text)
            labels = torch.arange(image.size(0)) + dist.get_rank() * image.size(0)
            return F.cross_entropy(scale * image @ text_all.T, labels)
    """,
    "all with all": """
        import torch
        import torch.distributed as dist
        import torch.nn.functional as F

        def clip_loss(image, text, rank):
            image_all, text_all = gather(image), gather(text)
            labels = torch.arange(len(image_all))
            return F.cross_entropy(image_all @ text_all.T, labels)
    """,
}

test_finds, test_leaves = cases_of("local-labels", SICK, HEALTHY)
