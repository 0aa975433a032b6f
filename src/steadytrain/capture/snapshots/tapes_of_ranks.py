"""How long the ranks of one run keep their tapes: an incident of one rank needs the tapes of all.

Ranks end at different moments, and an incident may be frozen at the very end. So each first marks that it is over and
then looks: at least the last one sees what all have frozen. No rank waits for another.
"""

from __future__ import annotations

from pathlib import Path

from steadytrain.capture.step import ranks
from steadytrain.storage.ranks_of_run import rank_folder
from steadytrain.storage.run_folder import RUN_FILE
from steadytrain.storage.staged_bundle import INCIDENTS_FOLDER
from steadytrain.storage.tape_files import remove_recording

OVER = "over"
"""An empty file in the folder of a rank whose last incident is frozen."""


def needed_by_others(folder: Path, rank: int | None = None, world: int | None = None) -> bool:
    """Marks that the rank with this run folder is over. Returns whether its tape has to stay: another rank has an
    incident, or may still get one. The last rank to ask, if there is no incident, removes the tapes of all.

    Args:
        rank, world: by default those of this process.
    """
    rank, world = ranks.rank() if rank is None else rank, ranks.world_size() if world is None else world
    if world < 2:
        return False
    run = folder.parent.parent if rank else folder
    folders = [rank_folder(run, number) for number in range(world)]
    if folder != folders[rank]:
        return False  # not a rank of a launcher: its folder has another name
    (folder / OVER).touch()
    others = [one for one in folders if one != folder]
    if not all((one / RUN_FILE).is_file() for one in others):
        return False  # recorded elsewhere, so they are never replayed together
    if any(next((one / INCIDENTS_FOLDER).glob("*step-*"), None) is not None for one in others):
        return True
    if not all((one / OVER).exists() for one in others):
        return True
    if next((folder / INCIDENTS_FOLDER).glob("*step-*"), None) is None:
        for one in others:
            remove_recording(one)
    return False
