//! BYTES: listeners, framing, in-order answers, sendfile, back-pressure. Knows nothing of requests but their order.
