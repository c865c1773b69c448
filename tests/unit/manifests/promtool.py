"""Prometheus's own checks, of Debian's package prometheus, where it is installed."""

import shutil

import pytest

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
