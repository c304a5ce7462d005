"""HTTP: requests parsed, answers rendered, errors as problem documents."""
