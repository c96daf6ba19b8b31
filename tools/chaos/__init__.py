"""Repeatedly kill processes that work on a run, and compare the result with an undisturbed run.

    python -m tools.chaos FOLDER --kills 1000 --seed 1

If SLURM_CONF belongs to the local cluster (`export $(slurm/local-cluster env)`), runs are jobs there; otherwise, and
with `--here`, they are processes on this machine. Each round is a separate run, which is disturbed until it is finished
and then compared. The same command resumes. Requires cc, and root on the cluster.
"""
