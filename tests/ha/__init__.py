"""Replicas of the operator against a real API server: killed, stopped, cut off, refused; deletions; a restored etcd."""
