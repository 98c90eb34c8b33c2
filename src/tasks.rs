//! Spawn, name, wait: the only spawner of threads and tasks.
