"""MLflow's client side: recording, registration and promotion. No other package here uses MLflow.

server      the server's address, and the form of it that may be shown
tracking    a tracking server, whichever client it is used with
client      selects the client: over_rest (REST), over_mlflow (MLflow's client), local (the same, with a cache)
names       the tags and aliases written to MLflow
recorder    the live record of a pipeline run in MLflow; curves streams its points
champion    the version that a student has to beat, and its files
register    the finished run: its evidence, and a version for review
verdict     the verdict of a run that ran elsewhere
evidence    the reviewer's view of a version: metrics, tags, description
pyfunc      the version's files, serving.py included; model_upload sends the model's own
middleware  allowlist, body limits and page settings before MLflow's own server
ui          the app of understudy ui
"""
