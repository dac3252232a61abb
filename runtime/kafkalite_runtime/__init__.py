"""What broker, operator and CLI share."""
