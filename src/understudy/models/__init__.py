"""Models: description, construction, download, saving, loading and size."""
