"""How much of all requests' bodies is held at once: read as JSON, a body takes twenty times its size.

What there is no room for waits, in the order in which it came, and then nothing of it is held here.
"""

import asyncio

SMALL = 64 * 2**10
"""In bytes. Bodies up to it are not counted, so that most requests go on while large ones wait for each other."""
ROOM = 16 * 2**20


class Budget:
    """Room for bodies, for those who run in one event loop."""

    def __init__(self, room: int = ROOM) -> None:
        self._free = room
        self._turn = asyncio.Lock()
        self._returned = asyncio.Event()

    async def take(self, size: int) -> int:
        """Wait for room, and take it. What was taken is given back once."""
        if size <= SMALL:
            return 0
        async with self._turn:
            while self._free < size:
                self._returned.clear()
                await self._returned.wait()
            self._free -= size
        return size

    def give_back(self, taken: int) -> None:
        """Let others have it."""
        self._free += taken
        self._returned.set()
