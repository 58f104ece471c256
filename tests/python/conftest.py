import threading

import pytest
import ringattn


@pytest.fixture
def ring():
    """ring(P): a group of P ranks in this process, closed afterwards."""
    made = []

    def make(world_size, **options):
        made.append(ringattn.local_group(world_size, **options))
        return made[-1]

    yield make
    for group in made:
        group.close()


def run_ranks(group, body, timeout=120):
    """body(comm) on a thread for each rank; results in rank order, the first failure raised."""
    results, failures = [None] * len(group), []

    def one(comm):
        try:
            results[comm.rank] = body(comm)
        except BaseException as error:  # raised below, on the test's thread
            failures.append(error)

    threads = [threading.Thread(target=one, args=(comm,), daemon=True) for comm in group]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
        assert not thread.is_alive(), "a rank hangs"
    if failures:
        raise failures[0]
    return results
