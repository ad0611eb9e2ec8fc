"""Files and bytes for every package: atomic writes, caches, strict JSON, digests."""
