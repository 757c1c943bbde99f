//! The frontend: REST and gRPC API; creates jobs and tasks, answers questions about them.
