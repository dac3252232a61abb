"""The embedded Kubernetes API server: the part of the REST API that the operator, the brokers and kubectl use.

For laptops and tests. What it does not implement is answered with 501 and the path, never with a plausible guess.
"""
