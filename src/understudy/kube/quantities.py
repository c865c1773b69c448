"""Numbers as Kubernetes writes them: quantities of a resource, and times."""

from datetime import datetime
from decimal import Decimal

UNITS = {"m": Decimal("0.001"), "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12)}
UNITS |= {"Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40)}


def amount(quantity: str) -> Decimal:
    """A Kubernetes quantity as a number: 500m is 0.5, 1Ki is 1024."""
    for unit in sorted(UNITS, key=len, reverse=True):
        if quantity.endswith(unit):
            return Decimal(quantity.removesuffix(unit)) * UNITS[unit]
    return Decimal(quantity)


def seconds(timestamp: str) -> float:
    """Unix seconds of a Kubernetes time."""
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
