"""Writes notes for the user on what a measurement could not see: each kind once.

Values that are absent because nothing existed (a module without a call, an integer output) need no note. Values that
the user would expect, and that the run did not measure, need one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import nn

from steadytrain.capture.tensors.activations.compiled import MODULES_MAX, Hidden, Place, can_be_called

INSIDE = "`--compiled inside`"

_WHY: dict[Hidden, str] = {
    "compiled": f"are inside compiled code; {INSIDE} lets the compiled graphs compute them",
    "compiled-before": f"are in code compiled before steadytrain started: watch first, then compile ({INSIDE})",
    "traced": "are called inside a compiled function; compile the model itself to measure them",
    "scripted": "are inside TorchScript",
    "hooked": "carry hooks of the script in a process that compiles; one more could make torch.compile trace again",
    "guarded": "cannot carry a hook: torch._dynamo.config.skip_nnmodule_hook_guards is off",
}
_WHY_NO_SLOT = "are inside compiled code without memory for them (CUDA graphs, or moved to another device since)"

NOTHING_SEEN = (
    "no module output was measured in a step in which it was due: the model is called inside a compiled function, or "
    "in another thread"
)
SILENT_SLOTS = (
    "compiled graphs computed no statistics of the modules inside them, although this was requested: torch.compile "
    "reuses graphs of another model of the same class, from before steadytrain started"
)
FUNCTIONS_LEFT = (
    "attention entropy, attention logits and the input of cross_entropy are not measured in a process that uses "
    "torch.compile: compiled code guards on the functions that steadytrain would wrap"
)


class Unseen:
    """Collects the notes; :meth:`take` returns the new ones."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._new: list[str] = []

    def note(self, kind: str, text: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            self._new.append(text)

    def take(self) -> list[str]:
        new, self._new = self._new, []
        return new

    def note_hidden(self, places: Sequence[Place], seen: Collection[str], *, in_graph: bool) -> None:
        """Note the modules of ``places`` that no hook could reach and whose paths are not among ``seen``."""
        hidden: dict[Hidden, list[str]] = {}
        for place in places:
            if place.hidden is not None and place.path not in seen and can_be_called(place.module):
                hidden.setdefault(place.hidden, []).append(place.path)
        for why, paths in hidden.items():
            reason = _WHY_NO_SLOT if why == "compiled" and in_graph else _WHY[why]
            self.note(why, f"outputs of {_some(paths)} are not measured: they {reason}")
        if len(places) >= MODULES_MAX:
            self.note("many", f"outputs are measured for the first {MODULES_MAX} modules only")

    def note_attention(self, places: Sequence[Place], seen: Collection[str], with_heads: Collection[str]) -> None:
        """Note the attention modules that were called without any scores from them or their children."""
        outermost: list[str] = []
        for place in places:
            if is_attention(place.module) and not any(_is_under(place.path, path) for path in outermost):
                outermost.append(place.path)
        blind = [
            path
            for path in outermost
            if path in seen and not any(other == path or _is_under(other, path) for other in with_heads)
        ]
        if blind:
            self.note(
                "attention",
                f"attention entropy and logits of {_some(blind)} are not measured: their scores pass neither through "
                "scaled_dot_product_attention nor through a softmax over the last of three or four dimensions (a fused "
                "kernel, scores of another shape, or no softmax)",
            )


def is_attention(module: nn.Module) -> bool:
    return "attention" in type(module).__name__.lower()


def _some(paths: Sequence[str]) -> str:
    return f"{len(paths)} modules (the first: {paths[0] or 'the model'})" if len(paths) > 1 else paths[0] or "the model"


def _is_under(path: str, other: str) -> bool:
    return path.startswith(f"{other}.") if other else bool(path)
