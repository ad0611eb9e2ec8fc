"""Files that programs share: atomic writes, caches, strict JSON, digests."""
