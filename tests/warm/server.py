"""The server of warm processes: ``python server.py SOCKET CLIENT``. What it forks becomes the program at the end of it.

It lives as long as its standard input is open.
"""

import sys

sys.path.pop(0)  # this folder
sys.path.insert(0, __file__.rpartition("/")[0].rpartition("/")[0])
from warm import serving

sys.path.pop(0)
serving.become(serving.serve(sys.argv[1], sys.argv[2]))
