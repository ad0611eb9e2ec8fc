"""What survives a crash: state directory, journal, samples."""
