"""Room for bodies: who waits, in which order, and that it is given back."""

import asyncio

from understudy.registry.middleware.body_budget import UNCOUNTED, Budget

LARGE = 2 * UNCOUNTED


async def settled() -> None:
    """Let everybody go on as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_body_without_room_waits_in_its_turn() -> None:
    async def answers() -> list[str]:
        budget, order = Budget(2 * LARGE), []

        async def take(name: str, size: int) -> None:
            await budget.reserve(size)
            order.append(name)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(take("first", LARGE))
            await settled()
            tasks.create_task(take("too large for now", 2 * LARGE))
            await settled()
            tasks.create_task(take("behind it", LARGE))
            await settled()
            assert order == ["first"]
            budget.release(LARGE)
            await settled()
            assert order == ["first", "too large for now"]
            budget.release(2 * LARGE)
        return order

    assert asyncio.run(answers()) == ["first", "too large for now", "behind it"]


def test_small_bodies_do_not_wait() -> None:
    async def size() -> int:
        budget = Budget(LARGE)
        await budget.reserve(LARGE)
        return await budget.reserve(UNCOUNTED)

    assert asyncio.run(size()) == 0


def test_who_stops_waiting_takes_nothing() -> None:
    async def size() -> int:
        budget = Budget(LARGE)
        await budget.reserve(LARGE)
        waiting = asyncio.create_task(budget.reserve(LARGE))
        await settled()
        waiting.cancel()
        await settled()
        budget.release(LARGE)
        return await budget.reserve(LARGE)

    assert asyncio.run(size()) == LARGE
