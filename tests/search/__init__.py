"""Exhaustive breadth-first search over the replication core: every order of every event, within stated bounds.

What runs is the production code: `Replica` with its `Leader`, `Follower` and `IsrChanges`, the controller's `decide`
and `prefer`, `RegistrationMachine` with `restart_verdict`, `Settlement`. Only the surroundings are a model: a log of a
few records, an API server with one partition and three brokers, and messages. See `python -m tests.search --help`.

What is abstracted, so that the number of states is finite:
- Time. The clock stands. A back-off is pending or over, a follower was caught up lately or long ago, and both change
  by an event that may happen at any moment; so every order of expiries is searched, possible ones and some impossible.
  That a follower is excused because it has all that its leader had at its previous fetch is left out.
- Replica order. The controller prefers the first replica; here every order of the replicas is tried, and the three
  brokers are interchangeable, so of six equal states one is searched. The order inside an ISR means nothing.
- Broker epochs are drawn per broker, not per cluster: no rule compares epochs of two brokers.
- Logs begin at offset 0, each record is a batch, retention and compaction do not run, producers are not idempotent.
- A fetch is answered or lost; at most one fetch of a broker is on its way. Answers can be late (`flight`).
- A broker sees the newest entry and the newest registrations, each as late as may be, but none in between.
"""
