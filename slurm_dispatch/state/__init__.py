"""The state folder: records, notes, and the way to touch them as their owner."""
