//! A test in the real world: clients, nodes, nemeses, workloads.
