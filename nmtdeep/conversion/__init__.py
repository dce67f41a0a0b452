"""Models of other toolkits as checkpoints of ours."""
