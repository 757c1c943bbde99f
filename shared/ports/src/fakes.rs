//! Fakes
