"""One small network with the same weights on several platforms, each a target of ``advisor profile``.

From the folder of the project::

    advisor profile examples.platforms.numpy_mlp:replica --name mlp --threads 1 --replicas 1 --batches 1,32,256

The boundary of the timer is the same for all: from an array of inputs in the client's memory to an array of scores in
the client's memory. What a platform needs to take the inputs over and to hand the scores back is inside; loading the
weights is outside. ``python -m examples.platforms.check`` compares the scores, ``make platforms`` measures.
"""
