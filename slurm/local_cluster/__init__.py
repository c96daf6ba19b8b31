"""A real Slurm on one machine, for tests: several virtual nodes with fake GPUs and accounting.

    slurm/local-cluster install                     Debian's packages; starts no service (needs root)
    slurm/local-cluster up --nodes 4 --gpus 2       returns when every node is up; a cluster already up is left alone
    slurm/local-cluster status | down
    slurm/local-cluster kill-node hn2 | start-node hn2      simulate a power cut, and the node's return
    export $(slurm/local-cluster env)               SLURM_CONF is all that sbatch, squeue and the harness need

All files are in one folder (`--folder`), and the daemons have their own ports (`--port`). No other Slurm is touched,
and `down` removes everything. Several clusters need also names of their own for their nodes (`--prefix`). Root starts
it, because slurmd runs jobs as their users; then every user of the machine may submit jobs.
"""
