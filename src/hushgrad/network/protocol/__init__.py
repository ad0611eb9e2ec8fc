"""The protocol between neighbours, without I/O: frames, HELLO, session, states, stopping."""
