"""Who asks: principals, channels, presence, per-caller limits, outbound queues."""
