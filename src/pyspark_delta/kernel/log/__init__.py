"""The log on a store: listings, Arrow frames, replay, snapshots, checkpoints."""
