"""A real Slurm on one machine, for tests: several virtual nodes with fake GPUs and accounting.

    slurm/local-cluster install                     Debian's packages; starts no service (needs root)
    slurm/local-cluster up --nodes 4 --gpus 2       returns when every node is up; does nothing if already up
    slurm/local-cluster status | down
    slurm/local-cluster kill-node hn2 | start-node hn2      simulate a power cut and a restart
    export $(slurm/local-cluster env)               sufficient for sbatch, squeue and the harness

All files are in one folder (`--folder`), and the daemons have their own ports (`--port`). Other Slurm installations are
not affected, and `down` removes everything. Several clusters need different node names (`--prefix`). Requires root,
because slurmd runs jobs as their users; then every user of the machine may submit jobs.
"""
