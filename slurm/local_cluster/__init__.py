"""A real Slurm on one machine, for tests: several virtual nodes with pretend GPUs, accounting included.

    slurm/local-cluster install                     Debian's packages; starts no service (needs root)
    slurm/local-cluster up --nodes 4 --gpus 2       returns when every node is up; a cluster already up is left alone
    slurm/local-cluster status | down
    slurm/local-cluster kill-node hn2 | start-node hn2      what a power cut does, and the node's return
    export $(slurm/local-cluster env)               SLURM_CONF: all that sbatch, squeue and the harness need

Everything lies in one folder (`--folder`) and on its own ports (`--port`); nothing of another Slurm
is touched, and `down` leaves nothing. Needs root, as slurmd does to start jobs.
"""
