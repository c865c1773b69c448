"""Memory budget for the bodies of all requests: parsed as JSON, a body takes twenty times its size.

Bodies without room wait in order of arrival, and are not read meanwhile.
"""

import asyncio

SMALL = 64 * 2**10
"""In bytes. Bodies up to this size are not counted, so most requests proceed while large ones wait for each other."""
ROOM = 16 * 2**20


class Budget:
    """Room for bodies, shared by the tasks of one event loop."""

    def __init__(self, room: int = ROOM) -> None:
        self._free = room
        self._turn = asyncio.Lock()
        self._returned = asyncio.Event()

    async def take(self, size: int) -> int:
        """Wait for room and take it. Return the amount, to be given back once."""
        if size <= SMALL:
            return 0
        async with self._turn:
            while self._free < size:
                self._returned.clear()
                await self._returned.wait()
            self._free -= size
        return size

    def give_back(self, taken: int) -> None:
        """Return room to the budget."""
        self._free += taken
        self._returned.set()
