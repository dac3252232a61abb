"""`kafkalite produce` and `kafkalite consume`."""
