"""The protocol between neighbours, without I/O: frames, HELLO, session, stopping."""
