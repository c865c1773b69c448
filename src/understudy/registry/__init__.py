"""The MLflow tracking server and model registry: the only package that knows MLflow.

server    where the server is, whether it answers, how to connect to it
rest      questions to an http server without importing mlflow
tracking  what recording asks of a server, over rest or of MLflow's client
lookup    what the registry says about a name, remembered while a local database is untouched
recorder  a pipeline run in MLflow while it goes on
champion  the version that a student has to beat, and its bytes
register  the finished run: its evidence, and a version for review
evidence  what a reviewer reads about a version: metrics, tags, description
pyfunc    the version's files; serving.py goes along with them
app       what the MLflow server runs: accounts, and who may move the champion; nothing else here imports it
"""
