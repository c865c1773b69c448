from pathlib import Path

import pytest

from tests.registry.submitted import Pipeline, connect
from understudy.cli.doctor import _registry
from understudy.registry.contents import checked_versions
from understudy.registry.server import tracking_uri


@pytest.mark.parametrize("harm", ["flip", "add", "remove", "manifest"])
def test_a_version_that_was_changed_after_its_registration_is_named(tmp_path: Path, harm: str) -> None:
    uri = tracking_uri(tmp_path / "home", None)
    assert list(checked_versions(uri)) == []
    pipeline = Pipeline(tmp_path, uri)
    registration = pipeline.register()
    pipeline.register(run=pipeline.new_run(), weights=b"another student")
    assert [is_whole for _, is_whole in checked_versions(uri)] == [True, True]
    assert [check.ok for check in _registry(uri)] == [True]
    source = (
        connect(uri).get_model_version(registration.name, str(registration.version)).source.removeprefix("models:/")
    )
    location = connect(uri).get_logged_model(source).artifact_location.removeprefix("file://")
    (weights,) = Path(location).glob("artifacts/*/model.safetensors")
    if harm == "flip":
        weights.write_bytes(b"ttudent")
    elif harm == "add":
        (weights.parent / "more").touch()
    elif harm == "remove":
        weights.unlink()
    else:
        weights.with_name("manifest.json").write_text("{}")
    assert {version.number: is_whole for version, is_whole in checked_versions(uri)} == {"1": False, "2": True}
    (check,) = _registry(uri)
    assert not check.ok
    assert "digits version 1" in check.found
