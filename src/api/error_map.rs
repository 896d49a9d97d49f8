//! Errors of the layers below as error codes: one exhaustive match a layer, without a wildcard.
