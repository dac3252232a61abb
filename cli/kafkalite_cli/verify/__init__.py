"""`kafkalite verify`: drive a topic, write down what every client saw, prove the log's promises from that.

`history` is the file format, `checker` the judgement (pure), `load` the clients, `command` the command line.
The format and every anomaly are described in docs/verify.md.
"""
