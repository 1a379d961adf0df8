"""Clock, sd_notify, key files, probes: what the operating system gives, without policy."""
