"""Files and bytes for every package: atomic writes, caches, locks, strict JSON, digests, pages."""
