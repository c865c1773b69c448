"""A step's store and tracking server, from the environment of its process."""

import os
from pathlib import Path

from understudy.store import Store

HOME = "UNDERSTUDY_HOME"
RUN = "UNDERSTUDY_RUN"
"""The run of this process, if started by `understudy run`, which shows the progress; KFP's tasks have none."""


def open_store() -> Store:
    """The store of this machine or pod."""
    return Store(Path(os.environ.get(HOME, ".understudy")) / "store")


def tracking_uri(store: Store) -> str:
    """The tracking server of this environment."""
    from understudy.registry import server

    return server.tracking_uri(store.folder.parent, None)
