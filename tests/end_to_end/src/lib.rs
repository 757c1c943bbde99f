//! Real binaries, real files, real crashes.
