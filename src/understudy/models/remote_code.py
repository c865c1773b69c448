"""Models that bring code of their own: it lies beside their weights, and runs only where a recipe trusts its source."""

import json
import tempfile
from pathlib import Path
from typing import Any

from understudy.store.files import canonical, sha256


def read(folder: Path) -> dict[str, str]:
    """A model folder's own code by file name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}


def build(description: dict[str, Any], auto: Any) -> Any:
    """A new network with random weights, of the class that the description's code defines for an auto class."""
    from transformers import AutoConfig

    with tempfile.TemporaryDirectory() as parent:
        # transformers imports the code from a folder, and knows it again by the folder's name.
        folder = Path(parent) / f"code_{sha256(canonical(description['code']))[:16]}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(description["config"]))
        for name, text in description["code"].items():
            (folder / name).write_text(text, encoding="utf-8")
        config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
        return auto.from_config(config, trust_remote_code=True)
