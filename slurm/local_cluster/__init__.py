"""A real Slurm on one machine, for tests: several virtual nodes with fake GPUs and accounting.

    slurm/local-cluster install                     install Debian's packages; starts no service (requires root)
    slurm/local-cluster up --nodes 4 --gpus 2       wait until every node is up; does nothing if already up
    slurm/local-cluster status | down
    slurm/local-cluster kill-node hn2 | start-node hn2      simulate a power cut and a restart
    export $(slurm/local-cluster env)               let sbatch, squeue and the harness use the cluster

All files are in one folder (`--folder`), and the daemons use separate ports (`--port`). Other Slurm installations are
not affected, and `down` removes everything. Several clusters require different node names (`--prefix`). The command
requires root, because slurmd runs jobs as the users who submit them; every user of the machine may submit jobs.
"""
