"""Workers of one node get cores of their own that lie together."""

from __future__ import annotations

from pathlib import Path

from jobs.work.node_share import in_order_of_place, share


def test_no_two_workers_share_a_core_or_have_cores_of_both_processors(tmp_path: Path) -> None:
    # Two processors with four cores of two threads, numbered as Linux does: the second threads after all first ones.
    for number in range(16):
        topology = tmp_path / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{number % 8 // 4}\n")
        (topology / "core_id").write_text(f"{number % 4}\n")
    cores = in_order_of_place(set(range(16)), tmp_path)
    assert [share(cores, worker, 4) for worker in range(4)] == [
        [0, 8, 1, 9],
        [2, 10, 3, 11],
        [4, 12, 5, 13],
        [6, 14, 7, 15],
    ]


def test_cores_stay_in_order_where_the_system_says_nothing(tmp_path: Path) -> None:
    assert in_order_of_place({3, 1, 2}, tmp_path) == [1, 2, 3]
