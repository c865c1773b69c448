"""Code that runs inside the MLflow server. Nothing else in the package imports it."""
