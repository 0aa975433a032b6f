"""The public entry points ``watch`` and ``run_target``, and the start hook for child processes.

This room only connects the others: it measures nothing, and does not import torch before the script does.

``watch`` attaches from inside a script (``in_script``), ``run_target`` runs a script under watch, and ``arm_child``
attaches to the processes that a watched script starts (``launched_script``). The options are one value, ``Options``.
"""

from steadytrain.attach.in_script import Watch as Watch
from steadytrain.attach.in_script import watch as watch
from steadytrain.attach.launched_script import Wanted as Wanted
from steadytrain.attach.launched_script import arm_child as arm_child
from steadytrain.attach.launched_script import run_target as run_target
from steadytrain.attach.options import Options as Options
from steadytrain.attach.process_watch import attached as attached
