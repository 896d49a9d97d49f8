use super::*;

#[test]
fn software_token_of_letters_digits_dots_and_dashes_is_valid() {
    for good in ["apache-kafka-java", "4.4.0", "a", "librdkafka", "2.3.0-rc1"] {
        assert!(is_software_token(good), "{good}");
    }
    for bad in ["", "-a", "a-", ".", "a b", "a_b", "é"] {
        assert!(!is_software_token(bad), "{bad}");
    }
}
