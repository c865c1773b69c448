"""A registry with a champion, a model for it, and examples to measure it on."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from understudy.registry import champion as champions
from understudy.registry.champion import Champion
from understudy.store import Manifest, Store

FACTS = {"task": "image-classification", "labels": ["a", "b"], "image": {"size": 8, "channels": 1}}


def described(store: Store, folder: Path, facts: dict[str, Any], tokenizer: str = "") -> str:
    """The digest of examples in the store, whose records are there too."""
    folder.mkdir()
    records = folder.with_name(f"{folder.name}-records")
    records.mkdir()
    (records / "records.parquet").write_bytes(b"records")
    made_from = {"records": store.objects.publish(records, "records")}
    (folder / "examples.json").write_text(json.dumps({**facts, "counts": {"test": 3}}))
    if tokenizer:
        (folder / "tokenizer.json").write_text(tokenizer)
    return store.objects.publish(folder, "examples", made_from)


def model(store: Store, folder: Path, facts: dict[str, Any] = FACTS, tokenizer: str = "") -> str:
    """The digest of a model in the store."""
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "understudy.json").write_text(json.dumps({"kind": "transformers", "config": {}, **facts}))
    if tokenizer:
        (folder / "tokenizer.json").write_text(tokenizer)
    return store.objects.publish(folder, "model", {"examples": "e" * 64}, {"loss": 0.5})


def name_champion(monkeypatch: pytest.MonkeyPatch, digest: str, copy: Path | None = None) -> list[str]:
    """Let the registry have a champion, to be downloaded from a folder; the list grows with each download."""
    fetched: list[str] = []

    def fetch(uri: str, champion: Champion, folder: Path) -> Manifest:
        assert copy is not None, "the champion was downloaded although the store has it"
        fetched.append(champion.digest)
        for name in ("model.safetensors", "understudy.json"):
            shutil.copy(copy / name, folder)
        return Manifest("model", (), {"examples": "e" * 64}, {"loss": 0.5})

    monkeypatch.setattr(champions, "champion", lambda uri, name: Champion(name, "3", digest, "models:/digits/3"))
    monkeypatch.setattr(champions, "fetch", fetch)
    return fetched
