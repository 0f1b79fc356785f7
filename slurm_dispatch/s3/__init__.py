"""The checkpoint root in S3 and in stores that speak like it; needs the extra ``slurm-dispatch[s3]``.

``<prefix>/own/<generation>`` is an object whose body is the job's key, ``<prefix>/exec/<attempt>/...`` is what an
execution wrote, ``<prefix>/pub/<name>`` is an empty object: a publication.
"""
