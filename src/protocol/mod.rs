//! MESSAGES: requests, responses, records, the API key table and error codes. No I/O.
