"""Files of every kind of program here: atomic writes, the user's cache, strict JSON, digests."""
