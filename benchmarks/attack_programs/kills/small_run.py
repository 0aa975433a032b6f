"""``small_run.py ARGUMENTS`` is ``steadytrain ARGUMENTS`` in which a run of seconds has what one of days has.

Snapshots and pieces of the tape every few steps, segments of ten readings, and a retention thread that never rests.
"""

import runpy
import sys

from steadytrain.capture.snapshots import snapshots, tape
from steadytrain.storage import compaction, retention, segments, tables, thinning

snapshots.Snapshots.__init__.__kwdefaults__.update(every_steps=6, cost_share=10.0)
tape.CHUNK_S = 0.05
segments.RECORDS_PER_SEGMENT_MAX = 10
tables.RECORDS_PER_SEGMENT_MAX = 10
compaction.full_steps_of = lambda rows, columns: 32
compaction.COLUMNAR_BYTES_MIN = 0
thinning.AROUND_STEPS = 8
retention.PERIOD_S = 0.05
retention.BUSY_SHARE = 1.0

sys.argv = ["steadytrain", *sys.argv[1:]]
runpy.run_module("steadytrain", run_name="__main__", alter_sys=True)
