"""One arm of a benchmark as a process; started by the referee, of no use by hand."""

import sys

from cost.case import Case
from cost.process import be_an_arm

be_an_arm(sys.argv[1], Case.from_json(sys.argv[2]))
