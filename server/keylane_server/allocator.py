"""What glibc's allocator does in a process of the server. Environments of other allocators stay as they are.

As a module of its own: the processes of granian and their children set it, and share nothing else.
"""

import ctypes
import os

MMAP_THRESHOLD, ARENA_MAX = -3, -8
"""The parameters of mallopt(3)."""
LIMITS = {
    "MALLOC_MMAP_THRESHOLD_": (MMAP_THRESHOLD, 256 * 1024),
    "MALLOC_ARENA_MAX": (ARENA_MAX, 2),
}
"""A block of 256 KiB that is freed goes back to the system at once, and threads share their blocks: else
pages of large values left 700 MiB behind that nothing used."""


def limit_allocator() -> None:
    """Set what the environment does not. glibc reads that when a program starts, and granian's are forked."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return
    for name, (parameter, value) in LIMITS.items():
        if name not in os.environ:
            library.mallopt(parameter, value)
