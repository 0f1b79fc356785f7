"""The record of a job: its facts, the state that they make, and the decision that follows. No I/O."""
