"""`kafkalite doctor`: what is wrong, why, and what to do."""
