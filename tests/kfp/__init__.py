"""Runs on the KFP server that KFP_HOST names, walked as docs/operating/kfp.md says: make test-kfp."""
