"""Code that is bundled with a model, beside its weights. It runs only if a recipe trusts its source."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.models.facts import Config
from understudy.store.files import canonical, sha256


def read(folder: Path) -> dict[str, str]:
    """The code in a model's folder, by file name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}


def build(config: Config, code: Mapping[str, str], auto: Any) -> Any:
    """A new network with random weights, of the class that bundled code defines for a transformers auto class."""
    from transformers import AutoConfig

    with tempfile.TemporaryDirectory() as parent:
        # transformers imports the code from a folder, and caches the module by the folder's name.
        folder = Path(parent) / f"code_{sha256(canonical(code))[:16]}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        for name, text in code.items():
            (folder / name).write_text(text, encoding="utf-8")
        bundled_config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
        return auto.from_config(bundled_config, trust_remote_code=True)
