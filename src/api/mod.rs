//! REQUESTS: the router table and one file an API key.
