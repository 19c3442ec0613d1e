//! Yardsticks: what no strategy can go below, and what reuse is worth.
