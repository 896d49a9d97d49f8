//! The doors to the world: clock, disk, net, random; real and simulated.

pub mod clock;
pub mod disk;
pub mod sim_disk;
#[cfg(test)]
pub mod stalling_disk;
