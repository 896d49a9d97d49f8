use super::*;

#[test]
fn passes_come_due_after_the_delay_and_their_interval_and_again() {
    let intervals = BackgroundIntervals {
        initial_delay_ms: 10,
        retention_check_ms: 100,
        flush_check_ms: i64::MAX,
        recovery_point_checkpoint_ms: 60,
        log_start_offset_checkpoint_ms: 60,
    };
    let mut schedule = Schedule::new(&intervals, 1000);
    assert_eq!(schedule.next_ms(), 1010);
    assert_eq!(schedule.take_due(1009), []);
    assert_eq!(schedule.take_due(1010), [Pass::Retention]);
    assert_eq!(schedule.next_ms(), 1070);
    assert_eq!(
        schedule.take_due(1070),
        [Pass::RecoveryPoints, Pass::LogStartOffsets]
    );
    assert_eq!(
        schedule.take_due(1200),
        [Pass::Retention, Pass::RecoveryPoints, Pass::LogStartOffsets]
    );
}
