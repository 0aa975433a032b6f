"""One file per trainer library: it starts a watch when a fit begins and closes it when the fit ends.

An integration decides and judges nothing, and no other room imports its library.
"""

from __future__ import annotations

from typing import ClassVar

from steadytrain.core.plugin_pages import Pages
from steadytrain.core.plugins import Kind


class Integration:
    """The contract of an integration plug-in: what it declares before its library is imported.

    ``requires`` is the library; ``use`` is what a user imports from the module, and how. Both are literals, because
    they are read from the source. The rest of the module fulfils the contract of ``steadytrain.testing``.
    """

    requires: ClassVar[str]
    use: ClassVar[str]


def _lacks(cls: type[Integration]) -> str | None:
    lacking = [name for name in ("requires", "use") if not hasattr(cls, name)]
    return f"it does not say {', '.join(lacking)}" if lacking else None


INTEGRATIONS = Kind(
    "integration",
    Integration,
    __name__,
    "steadytrain.integrations",
    lacks=_lacks,
    heavy=True,
    besides=("fits",),
)

INTEGRATION_PAGES = Pages(
    kind=INTEGRATIONS,
    noun="integration",
    key="integrations",
    heading="Integrations",
    schema="steadytrain.integration-explanation/1",
    document=("name", "summary", "means", "next", "module", "requires", "use"),
    traits=lambda cls: {"module": cls.__module__, "requires": cls.requires, "use": cls.use},
    closing=lambda page: [f"Use: from {page.traits['module']} import {page.traits['use']}"],
    headings=("Means", "Next"),
    title="Integrations",
    intro="Trainers and frameworks with their own integration (`ways.md`).",
    markdown_closing=lambda page: [f"Use: `from {page.traits['module']} import {page.traits['use']}`."],
)
