"""The replica of one partition as a sans-IO state machine: leader, follower, ISR, high watermark."""
