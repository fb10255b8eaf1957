//! The fields of an answer or request, as a handler gives them.

use crate::manager::error::ConnError;
use dwell_proto::http1::is_token;

/// Fields of an answer, as (name, value).
pub(super) type Fields<'f> = &'f [(&'f str, &'f [u8])];
/// The same, owned.
pub(super) type OwnedFields = Vec<(String, Vec<u8>)>;

pub(super) fn check_fields(fields: Fields<'_>) -> Result<(), ConnError> {
    for (name, value) in fields {
        if !is_token(name.as_bytes()) {
            return Err(ConnError::FieldName((*name).into()));
        }
        if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(ConnError::FieldValue((*name).into()));
        }
    }
    Ok(())
}

pub(super) fn owned(fields: Fields<'_>) -> OwnedFields {
    let pairs = fields.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), value.to_vec()))
        .collect()
}

pub(super) fn borrowed(fields: &OwnedFields) -> Vec<(&str, &[u8])> {
    let pairs = fields.iter();
    pairs
        .map(|(name, value)| (name.as_str(), value.as_slice()))
        .collect()
}
