//! Builds and wires every component by `process.roles`; start and stop order.
