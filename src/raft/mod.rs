//! CONSENSUS: KRaft, a pure step machine and the driver that runs its outputs on log and network.
