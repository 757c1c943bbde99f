//! The task store on one SQLite file.
