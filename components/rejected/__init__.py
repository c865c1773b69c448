"""Records a rejected student in MLflow without a version, and shows the failed rules."""
