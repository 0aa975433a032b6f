"""A view that scrambles the axes of a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class ScrambledAxes(ScriptRule):
    """A view gives a tensor the axes of a permutation, but leaves its values where they are.

    Means:
        `view` and `reshape` keep the order of the values in memory. Of a tensor [rows, places, classes], `view(rows,
        classes, places)` has the shape of a transposed one and mixes places with classes. No shape is wrong, so nothing
        is raised. Images are judged by their smoothness: pictures [rows, columns, channels] that were viewed as
        [channels, rows, columns] are rough, and smooth if they are read back. Records that are sorted by hour first and
        then reshaped to [meters, hours] are mixed in the same way. Of a stream that is viewed as [steps, lanes], each
        lane gets every n-th value.

    Causes:
        - `view` or `reshape` where `permute` or `transpose` is meant: images of NumPy, logits of a sequence, heads
          of attention
        - `stream.view(steps, lanes)` where `stream.view(lanes, steps).t()` is meant
        - `np.lexsort((meter, hour))`, which sorts by its last key, and a reshape to [meters, hours]
        - no fault: values that are mixed on purpose

    Next:
        1. Move the axes with `permute` (or `transpose`), then call `reshape`.
        2. Sort by the key of the rows first: `np.lexsort((hour, meter))`, `sort_values(["meter", "hour"])`.
        3. Show an image of a batch as the model gets it.
    """

    looks_min: int = threshold(3, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        views = [row for row in script_rows(window, "scrambled-view") if len(row.steps) >= self.looks_min]
        if views:
            shapes, _, line = views[0].place.partition(":")
            before, _, after = (f"[{part.replace('x', ', ')}]" for part in shapes.partition(">"))
            read = script_rows(window, "swapped-sizes")
            where = f"the view of {read[0].place}" if read else f"a view before the loss of {line}"
            told = f"{where} makes {after} of {before} and moves no value; to exchange axes takes permute"
            return (self.warning(window, views[0], told, views=views[0].last),)
        tables = script_rows(window, "sorted-otherwise")
        if tables:
            told = f"{tables[0].place} makes a table of records that are sorted by the other key first"
            return (self.warning(window, tables[0], told, sorted_records=float(len(tables))),)
        streams = script_rows(window, "folded-stream")
        if streams:
            told = (
                f"{streams[0].place} folds a stream with neighbours side by side, so that each lane jumps over values "
                "from one step to the next; view(lanes, steps).t() keeps them together"
            )
            return (self.warning(window, streams[0], told, streams=float(len(streams))),)
        images = [row for row in script_rows(window, "interleaved-channels") if len(row.steps) >= self.looks_min]
        return tuple(
            self.warning(
                window,
                row,
                f"the images before the loss of {row.place} have their channels side by side: they were viewed, not "
                "permuted, from [rows, columns, channels]",
                roughness=row.last,
            )
            for row in images[:1]
        )
