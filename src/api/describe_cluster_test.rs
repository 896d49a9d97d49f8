use super::*;

/// Codes and messages as Apache Kafka 4.4 gave them.
#[test]
fn wrong_kind_of_endpoint_gets_kafkas_code_and_message() {
    let to_controller =
        "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER";
    let to_broker =
        "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER";
    let unsupported = "Unsupported endpoint type 3";
    for (own, wanted, api_version, code, message) in [
        (CONTROLLERS, BROKERS, 0, ErrorCode::InvalidRequest, to_controller),
        (
            CONTROLLERS,
            BROKERS,
            1,
            ErrorCode::MismatchedEndpointType,
            to_controller,
        ),
        (
            BROKERS,
            CONTROLLERS,
            1,
            ErrorCode::MismatchedEndpointType,
            to_broker,
        ),
        (BROKERS, 3, 2, ErrorCode::UnsupportedEndpointType, unsupported),
    ] {
        let refused = check_endpoint_type(own, wanted, api_version);
        assert_eq!(refused, Err(ApiError::new(code, message)));
    }
    assert_eq!(check_endpoint_type(BROKERS, BROKERS, 0), Ok(()));
    assert_eq!(check_endpoint_type(CONTROLLERS, CONTROLLERS, 1), Ok(()));
}
