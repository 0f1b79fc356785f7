"""Optional help inside a training: one module for each library, imported only when its callback is asked for.

``slurm_dispatch.integrations.transformers``, ``.lightning`` and ``.dcp``. None of them is needed: ``dispatch-watch``
publishes what these libraries save without them. What they add is what a program cannot see from outside: when all
ranks are done, what the scores were, and which save is the best one over all executions.
"""
