"""Power loss: a second kernel (user-mode-linux) that is killed in mid-write and started again.

The host's part is :mod:`~tests.power.cycles` (write, kill, look, again), over :mod:`tests.uml.kernel`. What runs in
the guest is :mod:`~tests.power.guest`: first :mod:`~tests.power.checker` looks at what the last loss left, then
:mod:`~tests.power.writer` writes with the product's own code and tells each return over the console. A line that came
over the console was said after the call had returned, and no kill takes it back.
"""
