"""The processor time of steadytrain's own threads is known while they live."""

from __future__ import annotations

import threading
import time

from steadytrain.capture.step.own_threads import own_threads_s


def test_the_time_of_our_threads_counts_and_no_others() -> None:
    ready, stop = threading.Event(), threading.Event()

    def work() -> None:
        until = time.thread_time() + 0.1
        while time.thread_time() < until:
            pass
        ready.set()
        stop.wait()

    before = own_threads_s()
    for name, counts in (("somebody's", False), ("steadytrain-test (a name)", True)):
        ready.clear()
        stop.clear()
        thread = threading.Thread(target=work, name=name)
        thread.start()
        assert ready.wait(60)
        assert (own_threads_s() - before >= 0.05) is counts
        stop.set()
        thread.join()
