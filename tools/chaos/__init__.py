"""Kill whatever works on a run, again and again, and compare what it becomes with an undisturbed run.

    python -m tools.chaos FOLDER --kills 1000 --seed 1

Where SLURM_CONF names the local cluster (`export $(slurm/local-cluster env)`), runs are jobs there; otherwise, and with
`--here`, they are processes of this machine. Rounds follow each other: each is a run of its own, which is killed until
it is finished and then compared. The same command goes on where it was stopped. Needs cc, and root on the cluster.
"""
