"""Memory budget for the bodies of all requests: parsed as JSON, a body takes twenty times its size.

Bodies without room wait in order of arrival, and are not read meanwhile.
"""

import asyncio

UNCOUNTED = 64 * 2**10
"""In bytes. Bodies up to this size are not counted, so most requests proceed while large ones wait for each other."""
CAPACITY = 16 * 2**20


class Budget:
    """Room for bodies, shared by the tasks of one event loop."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._free = capacity
        self._queue = asyncio.Lock()
        self._released = asyncio.Event()

    async def reserve(self, size: int) -> int:
        """Wait for room and take it. Return the amount, to be given back once."""
        if size <= UNCOUNTED:
            return 0
        async with self._queue:
            while self._free < size:
                self._released.clear()
                await self._released.wait()
            self._free -= size
        return size

    def release(self, reserved: int) -> None:
        """Return room to the budget."""
        self._free += reserved
        self._released.set()
