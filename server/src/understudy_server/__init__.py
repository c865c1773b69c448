"""Extensions of the MLflow server: accounts, teams, promotion, retention, audit. Only they use MLflow's internals.

app             the app, and the command that creates the accounts and becomes the server
connections     how many requests a worker handles, and its database connections
authentication  before a body is read; sign_in, tokens, id_token, token_review verify credentials
teams           the setting with the accounts; ownership gives their resources to teams, tenancy isolates these
authorization   who may change what, besides MLflow's permissions; confusables, validation, model_names refuse more
searches        searches that select only readable rows
promotion       the move of the alias champion; retention and uploads protect the version's files
audit           a line for every change
metrics         Prometheus metrics
schema, gc      commands: the upgrade of the database, and the removal of deleted runs
"""
