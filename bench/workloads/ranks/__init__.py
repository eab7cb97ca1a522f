"""Training in several processes, the ranks, which torch's elastic launcher (torchrun) starts.

The arm keeps a TCPStore. On it the launcher's agents find each other (c10d rendezvous), and the
ranks wait for what they are to do next: a blocked read costs no processor time, where a rank that
waits in a collective would spin. ``job`` says what is trained, ``work`` is the arm's side, ``rank``
runs inside each rank, ``launcher`` starts them, ``nodes`` is for several machines.
"""
