use super::*;

#[test]
fn batches_are_joined_up_to_the_limit_and_kept_in_order() {
    let batches = |sizes: &[usize]| -> Vec<(Bytes, i64)> {
        (1..)
            .zip(sizes)
            .map(|(end, size)| (Bytes::from(vec![end as u8; *size]), end))
            .collect()
    };
    let shape = |sizes: &[usize]| -> Vec<(usize, i64)> {
        let pending = batches(sizes);
        let all: Vec<u8> = pending.iter().flat_map(|(bytes, _)| bytes.to_vec()).collect();
        let groups = grouped(pending, 10);
        let joined: Vec<u8> = groups.iter().flat_map(|(bytes, _)| bytes.to_vec()).collect();
        assert_eq!(joined, all);
        groups
            .iter()
            .map(|(bytes, end_offset)| (bytes.len(), *end_offset))
            .collect()
    };
    assert_eq!(shape(&[]), []);
    assert_eq!(shape(&[4]), [(4, 1)]);
    assert_eq!(shape(&[4, 4, 4]), [(8, 2), (4, 3)]);
    assert_eq!(shape(&[3, 3, 4, 1]), [(10, 3), (1, 4)]);
    assert_eq!(shape(&[20, 1, 20]), [(20, 1), (1, 2), (20, 3)]);
}
