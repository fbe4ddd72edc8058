//! Bounded pool for work that blocks.
