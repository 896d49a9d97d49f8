//! METADATA WRITES: the controller's state machine and the task that feeds it.
