"""Published studies, rivals in the same run, and a benchmark of incomplete labels.

As in :mod:`tagstream.paper` there are two halves that meet in files.  One half runs: a learner
(:mod:`~tagstream.studies.learners`) on a stream is one cell, and gives one line of JSON
(:mod:`~tagstream.studies.runner`).  The other half reads these lines and the numbers of others
(:mod:`~tagstream.studies.published`), and makes tables and pictures.

    module       what it holds
    published    the numbers of two studies, and what is known of their streams
    learners     the learners that can be run: ours, scikit-learn's, river's, MOA's and MEKA's
    runner       one learner on one stream under both studies' evaluators; records
    reproduced   records of ``tagstream reproduce``, as if they had been run here
    compare      records beside published numbers
    report       the same as files: tables, pictures of ranks
    benchmark    streams whose labels are new, late and missing
    leaderboard  tables of the benchmark, from files that anyone can contribute
    drift        streams that drift, made by MOA's generator
    extreme      many labels: precision at 1, 3 and 5 on the customary split
    contract     what a learner must keep to be compared
    records      files of JSON lines
"""
