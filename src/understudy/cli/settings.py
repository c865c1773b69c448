"""The global options."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.errors import InputError

if TYPE_CHECKING:
    from understudy.store import Store


@dataclass(frozen=True)
class Settings:
    """The global options; commands read them from `ctx.obj`."""

    home: Path
    tracking_uri_option: str | None
    quiet: bool
    verbose: bool

    @property
    def store_folder(self) -> Path:
        """The store's folder, whether it exists or not."""
        return self.home / "store"

    @property
    def tracking_uri(self) -> str:
        """The MLflow server to use."""
        from understudy.registry.server import tracking_uri

        return tracking_uri(self.home, self.tracking_uri_option)

    def open_store(self) -> "Store":
        """The existing store.

        Raises:
            InputError: there is none.
        """
        from understudy.store import Store

        self.require_store()
        return Store(self.store_folder)

    def require_store(self) -> None:
        """Refuse a folder that is not a store.

        Raises:
            InputError: there is none.
        """
        if not (self.store_folder / "version.json").exists():
            raise InputError(f"{self.store_folder}: no store here; understudy run makes one, --home points at another")
