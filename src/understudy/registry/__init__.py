"""The MLflow tracking server and model registry: the only package that knows MLflow.

server      where the server is, and what of its address may be shown
tracking    what is asked of it (a protocol)
client      decides how it is asked: over_rest (by rest), over_mlflow (MLflow's client), local (the same, remembering)
names       the tags and aliases that are written there
recorder    a pipeline run in MLflow while it goes on; curves on their way
champion    the version that a student has to beat, and its bytes
register    the finished run: its evidence, and a version for review
verdict     what became of a run that ran elsewhere
evidence    what a reviewer reads about a version: metrics, tags, description
pyfunc      the version's files; serving.py goes along with them, and model_upload sends the model's own
server_app  what runs inside the MLflow server: accounts, and who may move the champion; nothing else imports it
"""
