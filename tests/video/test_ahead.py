"""Work ahead in a thread: the same items, the same errors, and nothing left behind."""

import gc
import subprocess
import sys
import threading
import time
from itertools import count, islice

import pytest

from di2pose.video.ahead import ahead


class Numbers:
    """0, 1, 2, ...; knows which thread makes them, how many it made, and whether they were closed."""

    def __init__(self, end=None, error=None):
        self.end, self.error = end, error
        self.made, self.closed, self.thread = 0, False, None

    def __iter__(self):
        self.thread = threading.current_thread()
        try:
            for number in count() if self.end is None else range(self.end):
                self.made += 1
                yield number
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True


def settled(numbers, made, patience_s=5.0):
    """Waits until the thread has made so many, and a little longer for one too many."""
    until = time.monotonic() + patience_s
    while numbers.made < made and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.05)
    return numbers.made


def test_the_items_come_in_order_from_another_thread():
    numbers = Numbers(100)
    assert list(ahead(iter(numbers), 3)) == list(range(100))
    assert numbers.thread is not threading.current_thread()
    assert not numbers.thread.is_alive()
    assert numbers.closed


def test_it_is_so_many_ahead_and_no_more():
    numbers = Numbers()
    items = ahead(iter(numbers), 3)
    assert numbers.made == 0, "nothing begins before it is asked for"
    assert next(items) == 0
    assert settled(numbers, 4) == 4
    assert next(items) == 1
    assert settled(numbers, 5) == 5
    items.close()


def test_closed_early_the_thread_ends_and_the_source_is_closed():
    numbers = Numbers()
    items = ahead(iter(numbers), 2)
    assert list(islice(items, 3)) == [0, 1, 2]
    items.close()
    assert numbers.closed
    assert not numbers.thread.is_alive()
    assert list(items) == []


def test_forgotten_it_ends_too():
    numbers = Numbers()
    items = ahead(iter(numbers), 2)
    next(items)
    del items
    gc.collect()
    assert numbers.closed
    assert not numbers.thread.is_alive()


def test_an_error_comes_behind_the_good_items_with_its_traceback():
    numbers, taken = Numbers(5, ValueError("the sixth is bad")), []
    with pytest.raises(ValueError, match="the sixth is bad") as caught:
        taken.extend(ahead(iter(numbers), 8))
    assert taken == [0, 1, 2, 3, 4]
    assert "__iter__" in [entry.name for entry in caught.traceback]
    assert not numbers.thread.is_alive()


def test_what_the_caller_raises_ends_the_thread():
    numbers = Numbers()
    items = ahead(iter(numbers), 2)
    next(items)
    with pytest.raises(KeyboardInterrupt):
        items.throw(KeyboardInterrupt())
    assert numbers.closed
    assert not numbers.thread.is_alive()


def test_one_behind_the_other_close_together():
    numbers = Numbers()
    doubled = ahead((2 * number for number in ahead(iter(numbers), 2)), 2)
    assert list(islice(doubled, 4)) == [0, 2, 4, 6]
    doubled.close()
    assert numbers.closed
    assert not numbers.thread.is_alive()


def test_a_program_that_ends_half_way_does_not_hang():
    program = (
        "from itertools import count\n"
        "from di2pose.video.ahead import ahead\n"
        "items = ahead((number for number in count()), 2)\n"
        "print(next(items))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
