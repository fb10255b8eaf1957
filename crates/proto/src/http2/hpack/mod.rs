//! The compression of field sections (RFC 7541).

mod decoder;
mod dynamic_table;
mod encoder;
mod huffman;
mod integer;
mod section;
mod static_table;

pub use decoder::HpackDecoder;
pub use encoder::{encode_field, encode_status};
pub use section::{FieldSection, SectionLimits};

#[cfg(test)]
mod tests;
