"""The store on a real NFS: a second kernel with a server of NFSv4.2 and two clients of it.

The host's part is :mod:`~tests.nfs.boot`. In the guest :mod:`~tests.nfs.guest` starts the server
(:mod:`~tests.nfs.server`), mounts it twice with caches of their own, runs tests with pytest and measures the window
(:mod:`~tests.nfs.window`), and tells each result over the console.
"""
