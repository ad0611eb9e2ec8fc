"""The state that survives a crash: directory, journal, samples."""
