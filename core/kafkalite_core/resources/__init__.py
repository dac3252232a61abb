"""Custom resources and other Kubernetes objects <-> model, and the JSON Patches that change them."""
