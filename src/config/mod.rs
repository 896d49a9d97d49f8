//! CONFIG: one table of keys with type, default and valid range; `server.properties`; topic configs.
